//! Descriptors that a fork's child must not keep: sockets whose end tells a peer that this process
//! has gone, locks that end with it.
//!
//! They are bits and not a list, for the child can wait for no lock that a thread of its parent may
//! have held.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors above this are not kept in mind; the usual limit of a process is 1024.
const MOST: usize = 1 << 16;

static MARKED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// Marks a descriptor for as long as it is open.
///
/// It has to be dropped before the descriptor is closed, whose number is another's then: in a struct
/// it stands before it.
#[derive(Debug)]
pub struct Mark(usize);

impl Mark {
    /// Marks an open descriptor.
    pub fn of(fd: impl AsFd) -> Self {
        let number = usize::try_from(fd.as_fd().as_raw_fd()).unwrap_or(MOST);
        if let Some(word) = MARKED.get(number / 64) {
            word.fetch_or(1 << (number % 64), Ordering::AcqRel);
        }
        Self(number)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(word) = MARKED.get(self.0 / 64) {
            word.fetch_and(!(1 << (self.0 % 64)), Ordering::AcqRel);
        }
    }
}

/// In the child: the marked descriptors, which are not marked from here on. Who closes them must
/// never drop what owned them in the parent.
pub fn take_inherited() -> Vec<RawFd> {
    let mut taken = Vec::new();
    for (at, word) in (0..).step_by(64).zip(&MARKED) {
        let bits = word.swap(0, Ordering::AcqRel);
        taken.extend(
            (0..64)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| at + bit),
        );
    }
    taken
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
        assert_eq!(take_inherited(), [kept.as_raw_fd()]);
        assert_eq!(take_inherited(), []);
    }
}
