//! What a [`RemoteToken`](super::RemoteToken) is made of.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use hsmux_token::fork::Unshared;
use hsmux_token::{DirectConnection, TokenInfo};

/// The process at the other end of the lanes: it can be watched, asked to serve connections, and ended.
pub trait PeerProcess: Send + Sync {
    /// Turns readable when the peer has ended (a pidfd); `None` when the lanes are all there is.
    fn ended(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The peer's process id, where it is a process of this machine.
    fn process(&self) -> Option<u32> {
        None
    }

    /// See [`hsmux_token::Token::hand_over`].
    fn hand_over(&self, _connection: &DirectConnection<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// See [`hsmux_token::Token::takes_connections`].
    fn takes_connections(&self) -> bool {
        false
    }

    /// See [`hsmux_token::Token::served_directly`].
    fn served_directly(&self) -> u64 {
        0
    }

    /// Nobody needs the peer any more: it may finish what it is doing. Does not wait.
    fn release(&self) {}

    /// Ends the peer now. Does not wait.
    fn kill(&self) {}

    /// What became of it, for the error: `died by signal 11`. Called once, when it has ended.
    fn fate(&self) -> String {
        "closed the connection".into()
    }
}

/// Nothing is known of the peer but its lanes.
impl PeerProcess for () {}

/// What a [`RemoteToken`] is made of.
pub struct Link {
    /// Who it is, for errors: `the worker of hsm1`.
    pub name: String,
    /// What the token says of itself.
    pub info: TokenInfo,
    /// The frame version agreed.
    pub version: u16,
    /// One operation runs on each at a time; at most 65,000.
    pub lanes: Vec<Unshared<UnixStream>>,
    /// For reading objects, so that this takes no lane. `None`: the lanes are for uses of keys only.
    pub admin: Option<Unshared<UnixStream>>,
    /// How many operations a lane carries at most: they run one after the other, and those that wait
    /// together travel in one frame. What finds all lanes full waits here.
    pub depth: usize,
    /// The other end takes one frame at a time on each lane, so frames fill up while others are on their way.
    pub one_frame: bool,
    /// The process at the other end of the lanes.
    pub peer: Box<dyn PeerProcess>,
}
