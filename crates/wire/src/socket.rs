//! Unix sockets as hsmux uses them: never inherited, never a signal, waits with a deadline.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hsmux_token::fork::Unshared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};

use crate::account::account;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl From<&Path> for Endpoint {
    fn from(path: &Path) -> Self {
        Self::Unix(path.to_owned())
    }
}

/// The process at the other end, as the kernel saw it when the connection was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Effective user id, for rights and records.
    pub uid: u32,
    /// The user's account, for shares and limits: subordinate ids (subuid(5)) have that of their user.
    pub account: u32,
    /// Effective group id.
    pub gid: u32,
    /// Process id, or 0 for one in a container that this host's namespace does not see.
    pub pid: i32,
}

impl Peer {
    /// SO_PEERCRED (unix(7)).
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        // rustix's own reads the id as one that is never 0, which another pid namespace's is.
        let found =
            nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials)?;
        Ok(Self {
            uid: found.uid(),
            account: account(found.uid()),
            gid: found.gid(),
            pid: found.pid(),
        })
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {} of uid {}", self.pid, self.uid)
    }
}

/// Connects by the deadline. A server that is stopped, with a full backlog, would block for ever.
pub(crate) fn open(endpoint: &Endpoint, deadline: Instant) -> io::Result<Unshared<UnixStream>> {
    let Endpoint::Unix(path) = endpoint;
    let unconnected = || {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        socket_with(family, SocketType::STREAM, flags, None).map(UnixStream::from)
    };
    let socket = Unshared::make(unconnected)?;
    let left = left(deadline).max(Duration::from_millis(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Writes what the socket takes at once; `WouldBlock` when that is nothing.
pub(crate) fn write_some(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    retry(|| send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
}

/// Reads what is there; 0 at the end of the stream, `WouldBlock` when nothing is there.
pub(crate) fn read_some(stream: &UnixStream, into: &mut [u8]) -> io::Result<usize> {
    retry(|| recv(stream, &mut *into, RecvFlags::DONTWAIT).map(|(read, _)| read))
}

/// Waits until the descriptor is ready or the deadline has passed (`TimedOut`); `None` for ever.
pub(crate) fn wait(on: impl AsFd, ready: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| timespec(left(deadline)));
        match poll(&mut [PollFd::new(&on, ready)], left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A deadline a century off is cut to what the kernel takes.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().min(1 << 20).cast_signed(),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    Ok(rustix::io::retry_on_intr(call)?)
}
