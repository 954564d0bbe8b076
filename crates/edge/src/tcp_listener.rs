//! TCP listeners of services, and how many connections a process may have.

use std::io;
use std::net::{SocketAddr, TcpListener};

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
    fn accepted_connections_have_tcp_nodelay() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
