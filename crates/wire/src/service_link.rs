//! The link between the daemon and a service in a process of its own: packets on a pair of sockets (SOCK_SEQPACKET,
//! unix(7)), some with a descriptor.
//!
//! A service holds no PIN and no module. It gives connections to the daemon here ([`FromService::Connect`]), and asks the
//! pool over them with the frames of any program.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hsmux_token::Error;
use minicbor::{Decode, Encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use crate::descriptors::{receive, send};

/// The longest packet, in bytes.
const LONGEST: usize = 4 << 10;

/// The longest configuration, in bytes.
const LONGEST_TEXT: usize = 16 << 20;

/// From the daemon.
#[derive(Debug)]
pub enum ToService {
    /// What is in force from now on: the text of the configuration file, good as the daemon has found it.
    Configuration(String),
    /// Why no keys are used now; `None`: they are.
    Trouble(Option<String>),
    /// No new clients from now on; those that are there are served until the link ends.
    StopListening,
}

/// From a service.
#[derive(Debug)]
pub enum FromService {
    /// It serves.
    Ready,
    /// It cannot begin.
    Failed(Error),
    /// The daemon is to serve a connection.
    Connect {
        /// For whom.
        client: ServiceClient,
        /// The daemon's end.
        connection: UnixStream,
    },
    /// A client was refused.
    Refused {
        /// Its address and port.
        from: String,
        /// Why.
        problem: String,
        /// What to do about it.
        advice: String,
    },
}

/// Whose requests come on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ServiceClient {
    /// The service's own.
    #[n(0)]
    Service,
    /// Another host's, which has shown that it is of this name.
    #[n(1)]
    Host {
        /// Its name.
        #[n(0)]
        name: String,
        /// Its address and port, for messages.
        #[n(1)]
        from: String,
    },
}

/// A packet, as it travels.
#[derive(Encode, Decode)]
enum Packet {
    #[n(0)]
    Configuration,
    #[n(1)]
    StopListening,
    #[n(2)]
    Ready,
    #[n(3)]
    Failed(#[n(0)] Error),
    #[n(4)]
    Connect(#[n(0)] ServiceClient),
    #[n(6)]
    Trouble(#[n(0)] Option<String>),
    #[n(5)]
    Refused(#[n(0)] String, #[n(1)] String, #[n(2)] String),
}

/// One end of the link.
#[derive(Debug)]
pub struct ServiceLink(OwnedFd);

impl ServiceLink {
    /// The daemon's end, and the one that a service finds as its standard input.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(near), far))
    }

    /// The service's end.
    pub fn of_service(end: OwnedFd) -> Self {
        Self(end)
    }

    /// Ends it for both: whoever waits hears that the other has gone.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// Tells the service. Never waits: [`io::ErrorKind::WouldBlock`] if it reads nothing.
    pub fn tell(&self, message: &ToService) -> io::Result<()> {
        match message {
            ToService::Configuration(text) => {
                let file = sealed(text)?;
                self.send(&Packet::Configuration, &[file.as_fd()])
            }
            ToService::Trouble(why) => self.send(&Packet::Trouble(why.clone()), &[]),
            ToService::StopListening => self.send(&Packet::StopListening, &[]),
        }
    }

    /// Tells the daemon. Never waits: [`io::ErrorKind::WouldBlock`] if it has no time.
    pub fn report(&self, message: FromService) -> io::Result<()> {
        match message {
            FromService::Ready => self.send(&Packet::Ready, &[]),
            FromService::Failed(error) => self.send(&Packet::Failed(error), &[]),
            FromService::Connect { client, connection } => {
                self.send(&Packet::Connect(client), &[connection.as_fd()])
            }
            FromService::Refused {
                from,
                problem,
                advice,
            } => self.send(&Packet::Refused(from, problem, advice), &[]),
        }
    }

    /// Waits for what the daemon says; [`io::ErrorKind::UnexpectedEof`] when it has gone.
    pub fn hear(&self) -> io::Result<ToService> {
        match self.receive()? {
            (Packet::Configuration, Some(file)) => Ok(ToService::Configuration(text(file)?)),
            (Packet::Trouble(why), None) => Ok(ToService::Trouble(why)),
            (Packet::StopListening, None) => Ok(ToService::StopListening),
            _ => Err(unexpected()),
        }
    }

    /// Whether the service says something within this time, or has gone.
    pub fn wait(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec {
            tv_sec: within.as_secs().cast_signed(),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        let mut said = [PollFd::new(&self.0, PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut said, Some(&within)))?;
        Ok(ready > 0)
    }

    /// Waits for what the service says; [`io::ErrorKind::UnexpectedEof`] when it has gone.
    pub fn attend(&self) -> io::Result<FromService> {
        match self.receive()? {
            (Packet::Ready, None) => Ok(FromService::Ready),
            (Packet::Failed(error), None) => Ok(FromService::Failed(error)),
            (Packet::Connect(client), Some(connection)) => Ok(FromService::Connect {
                client,
                connection: connection.into(),
            }),
            (Packet::Refused(from, problem, advice), None) => Ok(FromService::Refused {
                from,
                problem,
                advice,
            }),
            _ => Err(unexpected()),
        }
    }

    fn send(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = minicbor::to_vec(packet).map_err(io::Error::other)?;
        if bytes.len() > LONGEST {
            let message = format!("a packet of {} bytes; {LONGEST} are the most", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        send(&self.0, &bytes, descriptors, SendFlags::DONTWAIT)
    }

    fn receive(&self) -> io::Result<(Packet, Option<OwnedFd>)> {
        let mut bytes = [0; LONGEST];
        let received = receive(&self.0, &mut bytes);
        let (read, mut descriptors) = received.map_err(|error| match error.kind() {
            // The other end has gone, and has left packets unread (unix(7)).
            io::ErrorKind::ConnectionReset => io::ErrorKind::UnexpectedEof.into(),
            _ => error,
        })?;
        let packet = minicbor::decode(&bytes[..read]);
        let packet = packet.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        match descriptors.len() {
            0 | 1 => Ok((packet, descriptors.pop())),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a packet of the other end")
}

/// A text that nobody changes any more: both ends have the same.
fn sealed(text: &str) -> io::Result<File> {
    let made = memfd_create(
        "hsmux-configuration",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    let mut file = File::from(made);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::GROW)
    .union(SealFlags::SHRINK);

fn text(file: OwnedFd) -> io::Result<String> {
    if !fcntl_get_seals(&file)?.contains(SEALS) {
        return Err(unexpected());
    }
    let mut text = String::new();
    File::from(file)
        .take(LONGEST_TEXT as u64)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (ServiceLink, ServiceLink) {
        let (daemon, service) = ServiceLink::pair().unwrap();
        (daemon, ServiceLink::of_service(service))
    }

    fn web1() -> ServiceClient {
        ServiceClient::Host {
            name: "web1".into(),
            from: "192.0.2.1:7".into(),
        }
    }

    #[test]
    fn a_service_hears_the_whole_configuration_and_the_end() {
        let (daemon, service) = pair();
        let long = "# a line of a large file\n".repeat(50_000);
        daemon
            .tell(&ToService::Configuration(long.clone()))
            .unwrap();
        daemon.tell(&ToService::StopListening).unwrap();
        let heard = service.hear().unwrap();
        assert!(matches!(heard, ToService::Configuration(text) if text == long));
        assert!(matches!(service.hear().unwrap(), ToService::StopListening));
        drop(daemon);
        let end = service.hear().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_end_is_the_same_with_packets_that_were_not_read() {
        let (daemon, service) = pair();
        service.report(FromService::Ready).unwrap();
        drop(daemon);
        let end = service.hear().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_daemon_is_given_a_connection_with_its_name() {
        let (daemon, service) = pair();
        let (mut near, connection) = UnixStream::pair().unwrap();
        service
            .report(FromService::Connect {
                client: web1(),
                connection,
            })
            .unwrap();
        let FromService::Connect { client, connection } = daemon.attend().unwrap() else {
            panic!("something else");
        };
        assert_eq!(client, web1());
        near.write_all(b"x").unwrap();
        let mut byte = [0];
        (&connection).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn who_does_not_listen_holds_nobody_up_and_nonsense_ends_the_link() {
        let (daemon, service) = pair();
        let full = (0..1_000_000).find_map(|_| service.report(FromService::Ready).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
        let (daemon_too, service_too) = pair();
        // What only the daemon says; a call without its descriptor; bytes that are no packet.
        service_too.send(&Packet::StopListening, &[]).unwrap();
        service_too.send(&Packet::Connect(web1()), &[]).unwrap();
        send(&service_too.0, b"\xff", &[], SendFlags::empty()).unwrap();
        send(&service_too.0, &[0; LONGEST + 1], &[], SendFlags::empty()).unwrap();
        for _ in 0..4 {
            let refused = daemon_too.attend().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
        }
        assert!(matches!(daemon.attend().unwrap(), FromService::Ready));
    }

    #[test]
    fn a_text_that_could_still_change_is_not_believed() {
        let (daemon, service) = pair();
        let file = tempfile::tempfile().unwrap();
        daemon
            .send(&Packet::Configuration, &[file.as_fd()])
            .unwrap();
        assert!(service.hear().is_err());
    }
}
