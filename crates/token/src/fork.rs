//! Descriptors that a fork's child must not keep: sockets whose end tells a peer that this process
//! has gone, locks that end with it.
//!
//! They are numbers in their places and not a list, for the child can wait for no lock that a thread of its parent may
//! have held.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors above this are not kept in mind; the usual limit of a process is 1024.
const MOST: usize = 1 << 16;

/// The inode of what is marked in the place of its descriptor; 0 where nothing is.
static MARKED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Marks a descriptor for as long as it is open.
///
/// It has to be dropped before the descriptor is closed, whose number is another's then: in a struct
/// it stands before it.
#[derive(Debug)]
pub struct Mark(usize);

impl Mark {
    /// Marks an open descriptor.
    pub fn of(fd: impl AsFd) -> Self {
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

/// In the child: the descriptors that were marked, with their inodes; none is from here on. Who closes them must
/// never drop what owned them in the parent, and first look whether each [`is_still`] what it was: a child that has
/// closed all descriptors may use the number for something else by now.
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
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_mark_lasts_as_long_as_it_is_kept() {
        let (kept, left) = UnixStream::pair().unwrap();
        let _kept = Mark::of(&kept);
        drop(Mark::of(&left));
        let [(number, inode)] = take_inherited()[..] else {
            panic!("one is marked");
        };
        assert_eq!(number, kept.as_raw_fd());
        assert!(is_still(kept.as_fd(), inode) && !is_still(left.as_fd(), inode));
        assert_eq!(take_inherited(), []);
    }
}
