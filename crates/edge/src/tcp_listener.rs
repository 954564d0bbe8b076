//! TCP listeners of services, and how many connections a process may have.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections that the kernel keeps until they are accepted: a burst of clients waits here.
const BACKLOG: i32 = 4096;

/// Opens a socket that does not block. The port may still have connections of an earlier process (SO_REUSEADDR).
/// Accepted connections inherit TCP_NODELAY: answers are sent at once.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Uses a listening socket of an earlier process; `None` if it does not listen at this address.
pub fn adopt(socket: OwnedFd, address: SocketAddr) -> Option<TcpListener> {
    let own = SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()?;
    let is_there = own == address || (address.port() == 0 && own.ip() == address.ip());
    let listens = rustix::net::sockopt::socket_acceptconn(&socket).ok()?;
    if !is_there || !listens {
        return None;
    }
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true).ok()?;
    rustix::net::sockopt::set_tcp_nodelay(&listener, true).ok()?;
    Some(listener)
}

/// Raises the limit of open files as far as allowed, and returns it. Each connection is a file.
pub fn files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let granted = match setrlimit(Resource::Nofile, all) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    granted.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_adopted_if_it_listens_at_the_address() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listen(any).unwrap();
        let own = listener.local_addr().unwrap();
        let socket = || OwnedFd::from(listener.try_clone().unwrap());
        for address in [own, any] {
            let adopted = adopt(socket(), address).expect("a listener");
            assert_eq!(adopted.local_addr().unwrap(), own);
        }
        let others = [
            SocketAddr::from(([127, 0, 0, 1], own.port() ^ 1)),
            SocketAddr::from(([127, 0, 0, 2], own.port())),
            SocketAddr::from(([127, 0, 0, 2], 0)),
        ];
        for address in others {
            assert!(adopt(socket(), address).is_none(), "{address}");
        }
        let client = std::net::TcpStream::connect(own).unwrap();
        let (accepted, _) = {
            listener.set_nonblocking(false).unwrap();
            listener.accept().unwrap()
        };
        for open in [client, accepted] {
            let address = open.local_addr().unwrap();
            assert!(adopt(open.into(), address).is_none());
        }
    }

    #[test]
    fn accepted_connections_have_tcp_nodelay() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
