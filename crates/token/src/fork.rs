//! Descriptors that a fork's child must not keep: sockets whose end tells a peer that this process
//! has gone, locks that end with it.
//!
//! They are numbers in their places and not a list, for the child can wait for no lock that a thread of its parent may
//! have held.

mod gate;

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use gate::Pass;
pub use gate::{after_in_child, after_in_parent, before};

/// Descriptors above this are not kept in mind; the usual limit of a process is 1024.
const MOST: usize = 1 << 16;

/// The inode of what is marked in the place of its descriptor; 0 where nothing is.
static MARKED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// A descriptor that is this process's alone, for as long as it is open; a file, a socket.
///
/// A fork's child has it closed by whoever asks [`take_inherited`], in whatever moment the fork comes, where [`before`]
/// and its likes are told of forks.
#[derive(Debug)]
pub struct Unshared<D: AsFd> {
    // Another descriptor may have the number as soon as this one is closed: the mark goes first.
    _mark: Mark,
    descriptor: D,
    closing: Option<Pass>,
}

impl<D: AsFd> Unshared<D> {
    /// Makes it and marks it. `make` must not block, for a fork waits for it.
    pub fn make<E>(make: impl FnOnce() -> Result<D, E>) -> Result<Self, E> {
        let _pass = Pass::enter();
        make().map(Self::from)
    }
}

impl Unshared<UnixStream> {
    /// Two sockets that are connected to each other.
    pub fn pair() -> io::Result<(Self, Self)> {
        let _pass = Pass::enter();
        let (one, other) = UnixStream::pair()?;
        Ok((one.into(), other.into()))
    }
}

/// Marks one that was made before: a fork meanwhile has given it to the child.
impl<D: AsFd> From<D> for Unshared<D> {
    fn from(descriptor: D) -> Self {
        Self {
            _mark: Mark::of(&descriptor),
            descriptor,
            closing: None,
        }
    }
}

impl<D: AsFd> Deref for Unshared<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.descriptor
    }
}

impl<D: AsFd> AsFd for Unshared<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl<D: AsFd> Drop for Unshared<D> {
    fn drop(&mut self) {
        // Until the last of the fields has been dropped.
        self.closing = Some(Pass::enter());
    }
}

/// The mark of an open descriptor.
#[derive(Debug)]
struct Mark(usize);

impl Mark {
    fn of(fd: impl AsFd) -> Self {
        let fd = fd.as_fd();
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(MOST);
        if let Some(place) = MARKED.get(number) {
            place.store(inode(fd), Ordering::Release);
        }
        Self(number)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(place) = MARKED.get(self.0) {
            place.store(0, Ordering::Release);
        }
    }
}

/// For the child: takes the marked descriptors, with their inodes. The caller closes them, and never drops what owned them
/// in the parent. It must first check that each [`is_still`] the same: a child that has closed all descriptors may have used
/// the number again.
pub fn take_inherited() -> Vec<(RawFd, u64)> {
    let places = (0..).zip(&MARKED);
    let taken = places.filter(|(_, place)| place.load(Ordering::Acquire) != 0);
    taken
        .map(|(number, place)| (number, place.swap(0, Ordering::AcqRel)))
        .collect()
}

/// Whether a descriptor is of this inode.
pub fn is_still(fd: BorrowedFd<'_>, of: u64) -> bool {
    inode(fd) == of
}

fn inode(fd: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(fd).map_or(0, |stat| stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_lasts_as_long_as_it_is_kept() {
        let (kept, left) = UnixStream::pair().unwrap();
        let kept = Unshared::from(kept);
        drop(Unshared::from(left.try_clone().unwrap()));
        let [(number, inode)] = take_inherited()[..] else {
            panic!("one is marked");
        };
        assert_eq!(number, kept.as_fd().as_raw_fd());
        assert!(is_still(kept.as_fd(), inode) && !is_still(left.as_fd(), inode));
        assert_eq!(take_inherited(), []);
    }
}
