//! Descriptors over a socket, from parent to worker (SCM_RIGHTS, unix(7)): its lanes, and connections of programs.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hsmux_token::ObjectId;
use hsmux_wire::descriptors;
pub(super) use hsmux_wire::descriptors::MOST;
use minicbor::{Decode, Encode};
use rustix::net::SendFlags;

/// More than [`Terms`] take.
const LONGEST: usize = 256;

/// What a program's connection is handed over for.
#[derive(Encode, Decode)]
#[cbor(array)]
pub(super) struct Terms {
    /// The frame version that is spoken on it.
    #[n(0)]
    pub version: u16,
    /// Only uses of this key.
    #[n(1)]
    pub key: ObjectId,
    /// How long one of them may take, in microseconds, before the worker hangs.
    #[n(2)]
    pub timeout_us: u64,
    /// Which of the parent's it is.
    #[n(3)]
    pub number: u64,
    /// Whether other threads and workers hear it, too.
    #[n(4)]
    pub shared: bool,
    /// Whether it comes first there.
    #[n(5)]
    pub home: bool,
}

/// A connection, as a worker gets it.
pub(super) struct ReceivedConnection {
    pub connection: UnixStream,
    /// Where it is written down how many uses were served.
    pub tally: File,
    pub terms: Terms,
}

/// Sends the lanes with one byte, which is all that is in the message.
pub(super) fn send(over: &UnixStream, lanes: &[impl AsFd]) -> io::Result<()> {
    let lanes: Vec<BorrowedFd<'_>> = lanes.iter().map(AsFd::as_fd).collect();
    descriptors::send(over, b"L", &lanes, SendFlags::empty())
}

/// Receives what [`send`] sent.
pub(super) fn receive(from: &UnixStream) -> io::Result<Vec<UnixStream>> {
    let (_, lanes) = descriptors::receive(from, &mut [0])?;
    Ok(lanes.into_iter().map(Into::into).collect())
}

/// Sends a connection. Does not wait.
pub(super) fn send_connection(
    over: &UnixStream,
    connection: &UnixStream,
    tally: &File,
    terms: &Terms,
) -> io::Result<()> {
    let bytes = minicbor::to_vec(terms).map_err(io::Error::other)?;
    let both = [connection.as_fd(), tally.as_fd()];
    descriptors::send(over, &bytes, &both, SendFlags::DONTWAIT)
}

/// Receives what [`send_connection`] sent: descriptors keep messages apart.
pub(super) fn receive_connection(from: &UnixStream) -> io::Result<ReceivedConnection> {
    let mut bytes = [0; LONGEST];
    let (read, descriptors) = descriptors::receive(from, &mut bytes)?;
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let [connection, tally] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|_| invalid("its descriptors are missing".into()))?;
    Ok(ReceivedConnection {
        connection: connection.into(),
        tally: tally.into(),
        terms: minicbor::decode(&bytes[..read]).map_err(|e| invalid(e.to_string()))?,
    })
}
