//! The link between the daemon and a service in a process of its own: packets on a pair of sockets (SOCK_SEQPACKET,
//! unix(7)), some with a descriptor.
//!
//! A service holds no PIN and no module. It gives connections to the daemon here ([`FromService::Connect`]), and asks the
//! pool over them with the frames of any program.

#[doc(hidden)]
pub mod fuzzing;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hsmux_token::Error;
use minicbor::{Decode, Encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with, socketpair,
};

use crate::descriptors::{receive, send};

/// The longest packet, in bytes.
const LONGEST: usize = 16 << 10;

/// The longest configuration, in bytes.
const LONGEST_TEXT: u64 = 16 << 20;

/// From the daemon.
#[derive(Debug)]
pub enum ToService {
    /// A listening socket of an earlier process, before the first configuration.
    Socket(ListeningSocket),
    /// What is in force from now on: the text of the configuration file, good as the daemon has found it.
    Configuration(String),
    /// Why no keys are used now; `None`: they are.
    Trouble(Option<String>),
    /// No new clients from now on; those that are there are served until the link ends.
    StopListening,
    /// Another process accepts the clients from now on. Those that are there are served, and the process ends.
    HandOver,
    /// Whether an event is on the trail's disk.
    Recorded {
        /// The service's number of the event.
        number: u64,
        /// An error: the trail's.
        result: Result<(), Error>,
    },
}

/// From a service.
#[derive(Debug)]
pub enum FromService {
    /// A duplicate of a listening socket, before it serves. The daemon gives it to the next process.
    Listens(ListeningSocket),
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
    /// An event for the daemon's audit trail.
    Record {
        /// Its JSON, which the daemon checks.
        event: Vec<u8>,
        /// How it is recorded.
        kind: RecordKind,
    },
}

/// A listening socket on its way between a service and the daemon.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The service's name of it: the key and the address of the configuration.
    pub name: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// How an event is recorded. Events with a number get an answer with that number ([`ToService::Recorded`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RecordKind {
    /// Without an answer.
    #[n(0)]
    Event,
    /// Before an act, which is not done after an error.
    #[n(1)]
    Announce(#[n(0)] u64),
    /// After an act.
    #[n(2)]
    Commit(#[n(0)] u64),
    /// No event: the service has refused so many uses and changes of keys since the last one.
    #[n(3)]
    Refusals(#[n(0)] u64),
    /// No event: the service has lost so many.
    #[n(4)]
    Lost(#[n(0)] u64),
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
    #[n(7)]
    Record(
        #[cbor(n(0), with = "minicbor::bytes")] Vec<u8>,
        #[n(1)] RecordKind,
    ),
    #[n(8)]
    Recorded(#[n(0)] u64, #[n(1)] Option<Error>),
    #[n(9)]
    Socket(#[n(0)] String),
    #[n(10)]
    Listens(#[n(0)] String),
    #[n(11)]
    HandOver,
}

/// One end of the link.
#[derive(Debug)]
pub struct ServiceLink(OwnedFd);

impl AsFd for ServiceLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ServiceLink {
    /// The longest event of a service, in bytes.
    pub const LONGEST_EVENT: usize = LONGEST - 64;

    /// The most events of a service that wait for [`ToService::Recorded`].
    pub const MOST_UNRECORDED: usize = 64;

    /// The most listening sockets of a service.
    pub const MOST_SOCKETS: usize = 64;

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

    /// The service's end of a link to the daemon that listens at this path.
    pub fn connect(path: &Path) -> io::Result<OwnedFd> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let link = socket_with(family, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&link, &SocketAddrUnix::new(path)?)?;
        Ok(link)
    }

    /// Whether this is the service's end of a link.
    pub fn is_link(end: impl AsFd) -> bool {
        rustix::net::sockopt::socket_type(end) == Ok(SocketType::SEQPACKET)
    }

    /// The daemon's end of a connection that it has accepted.
    pub fn of_daemon(end: OwnedFd) -> Self {
        Self(end)
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
            ToService::HandOver => self.send(&Packet::HandOver, &[]),
            ToService::Socket(ListeningSocket { name, socket }) => {
                self.send(&Packet::Socket(name.clone()), &[socket.as_fd()])
            }
            ToService::Recorded { number, result } => {
                let error = result.as_ref().err().cloned();
                self.send(&Packet::Recorded(*number, error), &[])
            }
        }
    }

    /// Tells the daemon. Never waits: [`io::ErrorKind::WouldBlock`] if it has no time.
    pub fn report(&self, message: FromService) -> io::Result<()> {
        match message {
            FromService::Listens(ListeningSocket { name, socket }) => {
                self.send(&Packet::Listens(name), &[socket.as_fd()])
            }
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
            FromService::Record { event, kind } => self.send(&Packet::Record(event, kind), &[]),
        }
    }

    /// Gives the daemon an event. Never waits: [`io::ErrorKind::WouldBlock`] if it has no time.
    pub fn record(&self, event: &[u8], kind: RecordKind) -> io::Result<()> {
        self.report(FromService::Record {
            event: event.to_vec(),
            kind,
        })
    }

    /// Waits for what the daemon says; [`io::ErrorKind::UnexpectedEof`] when it has gone.
    pub fn hear(&self) -> io::Result<ToService> {
        match self.receive()? {
            (Packet::Configuration, Some(file)) => Ok(ToService::Configuration(text(file)?)),
            (Packet::Trouble(why), None) => Ok(ToService::Trouble(why)),
            (Packet::StopListening, None) => Ok(ToService::StopListening),
            (Packet::HandOver, None) => Ok(ToService::HandOver),
            (Packet::Socket(name), Some(socket)) => {
                Ok(ToService::Socket(ListeningSocket { name, socket }))
            }
            (Packet::Recorded(number, error), None) => Ok(ToService::Recorded {
                number,
                result: error.map_or(Ok(()), Err),
            }),
            _ => Err(unexpected()),
        }
    }

    /// Waits until the service says something or has gone, until `also` can be read, or for this time. True in the
    /// first case.
    pub fn wait(&self, also: BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
        let mut ends = [
            PollFd::new(&self.0, PollFlags::IN),
            PollFd::from_borrowed_fd(also, PollFlags::IN),
        ];
        poll_within(&mut ends, within)?;
        Ok(!ends[0].revents().is_empty())
    }

    /// Waits until most of the room for packets to the other end is free, or the other end has gone. False if that
    /// takes longer than this time.
    pub fn wait_for_room(&self, within: Duration) -> io::Result<bool> {
        let mut room = [PollFd::new(&self.0, PollFlags::OUT)];
        Ok(poll_within(&mut room, within)? > 0)
    }

    /// Waits for what the service says; [`io::ErrorKind::UnexpectedEof`] when it has gone.
    pub fn attend(&self) -> io::Result<FromService> {
        match self.receive()? {
            (Packet::Listens(name), Some(socket)) => {
                Ok(FromService::Listens(ListeningSocket { name, socket }))
            }
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
            (Packet::Record(event, kind), None) => Ok(FromService::Record { event, kind }),
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
        let (read, mut descriptors) = match receive(&self.0, &mut bytes) {
            // The other end has gone, and has left packets unread (unix(7)). Its own packets come next.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                receive(&self.0, &mut bytes)?
            }
            received => received?,
        };
        let packet = minicbor::decode(&bytes[..read]);
        let packet = packet.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        match descriptors.len() {
            0 | 1 => Ok((packet, descriptors.pop())),
            _ => Err(unexpected()),
        }
    }
}

fn poll_within(ends: &mut [PollFd<'_>], within: Duration) -> io::Result<usize> {
    let within = Timespec {
        tv_sec: within.as_secs().cast_signed(),
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    Ok(rustix::io::retry_on_intr(|| poll(ends, Some(&within)))?)
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
        .take(LONGEST_TEXT + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST_TEXT {
        return Err(unexpected());
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
