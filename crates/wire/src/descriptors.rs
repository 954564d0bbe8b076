//! Descriptors that travel over a socket with a message (SCM_RIGHTS, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors that one message takes (SCM_MAX_FD).
pub const MOST: usize = 253;

/// Sends a message with descriptors, whole or not at all; waits for room unless `flags` say otherwise.
pub fn send(
    over: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other(format!("more than {MOST} descriptors")));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    let sent =
        rustix::io::retry_on_intr(|| sendmsg(&over, &[IoSlice::new(bytes)], &mut control, flags))?;
    if sent < bytes.len() {
        return Err(io::Error::other("a message was cut off"));
    }
    Ok(())
}

/// Waits for a message. Answers its length in `bytes`, and its descriptors. A longer message is an error, and its
/// descriptors are closed.
pub fn receive(from: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&from, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    })?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<_> = descriptors.flatten().collect();
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if received.flags.contains(rustix::net::ReturnFlags::TRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message is too long",
        ));
    }
    Ok((received.bytes, descriptors))
}
