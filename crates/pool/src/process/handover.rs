//! Descriptors over a socket: the lanes, from parent to worker (SCM_RIGHTS, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most that one message takes (SCM_MAX_FD).
pub(super) const MOST: usize = 253;

/// Sends the descriptors with one byte, which is all that is in the message.
pub(super) fn send(over: &UnixStream, lanes: &[UnixStream]) -> io::Result<()> {
    let lanes: Vec<BorrowedFd<'_>> = lanes.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&lanes)) {
        return Err(io::Error::other(format!("more than {MOST} descriptors")));
    }
    let byte = [IoSlice::new(b"L")];
    sendmsg(over, &byte, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives what [`send`] sent.
pub(super) fn receive(from: &UnixStream) -> io::Result<Vec<UnixStream>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
    })?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let lanes = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(lanes.flatten().map(|fd: OwnedFd| fd.into()).collect())
}
