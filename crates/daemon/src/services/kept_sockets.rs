//! Listening sockets of a service, which the daemon keeps for its next process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use hsmux_token::{Error, Result};
use hsmux_wire::{ListeningSocket, ServiceLink, ToService};
use rustix::net::{AddressFamily, SocketType, sockopt};

/// The longest name, in bytes. The names of all sockets and the configuration find room in a link that nobody reads yet.
const LONGEST_NAME: usize = 256;

/// Duplicates of the sockets that one process of a service listens on.
#[derive(Default)]
pub struct KeptSockets(Vec<ListeningSocket>);

impl KeptSockets {
    /// Keeps another one. A service that was taken over could send anything, and without end.
    pub fn add(&mut self, listening: ListeningSocket) -> Result<()> {
        if self.0.len() >= ServiceLink::MOST_SOCKETS {
            let message = format!("it has more than {} sockets", ServiceLink::MOST_SOCKETS);
            return Err(Error::protocol(message));
        }
        if listening.name.len() > LONGEST_NAME {
            let message = format!("a name of a socket has more than {LONGEST_NAME} bytes");
            return Err(Error::protocol(message));
        }
        if !is_listening(listening.socket.as_fd()).unwrap_or(false) {
            let message = format!("{:?} is no socket that listens", listening.name);
            return Err(Error::protocol(message));
        }
        self.0.push(listening);
        Ok(())
    }

    /// Gives duplicates to a process, which gets the configuration after them.
    pub fn give(&self, link: &ServiceLink) -> io::Result<()> {
        for ListeningSocket { name, socket } in &self.0 {
            link.tell(&ToService::Socket(ListeningSocket {
                name: name.clone(),
                socket: socket.try_clone()?,
            }))?;
        }
        Ok(())
    }

    /// Closes all. Once the service has closed its own, clients are refused.
    pub fn close(&mut self) {
        self.0.clear();
    }
}

fn is_listening(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let families = [
        AddressFamily::INET,
        AddressFamily::INET6,
        AddressFamily::UNIX,
    ];
    Ok(families.contains(&sockopt::socket_domain(socket)?)
        && sockopt::socket_type(socket)? == SocketType::STREAM
        && sockopt::socket_acceptconn(socket)?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::OwnedFd;

    use super::*;

    fn named(socket: impl Into<OwnedFd>) -> ListeningSocket {
        ListeningSocket {
            name: "listen".into(),
            socket: socket.into(),
        }
    }

    #[test]
    fn a_service_has_some_listening_sockets_kept_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut kept = KeptSockets::default();
        for other in [
            named(open),
            named(UdpSocket::bind("127.0.0.1:0").unwrap()),
            named(File::open("/dev/null").unwrap()),
        ] {
            let error = kept.add(other).unwrap_err().to_string();
            assert!(error.contains("no socket that listens"), "{error}");
        }
        let long = |length| ListeningSocket {
            name: "n".repeat(length),
            socket: listener.try_clone().unwrap().into(),
        };
        let error = kept.add(long(LONGEST_NAME + 1)).unwrap_err().to_string();
        assert!(error.contains("more than 256 bytes"), "{error}");
        for _ in 0..ServiceLink::MOST_SOCKETS {
            kept.add(long(LONGEST_NAME)).unwrap();
        }
        let error = kept.add(named(listener)).unwrap_err().to_string();
        assert!(error.contains("more than 64 sockets"), "{error}");
        // A process gets all of them before it reads anything.
        let (link, _service) = ServiceLink::pair().unwrap();
        kept.give(&link).unwrap();
        let text = ToService::Configuration("# a file\n".into());
        link.tell(&text).unwrap();
        link.tell(&ToService::StopListening).unwrap();
    }
}
