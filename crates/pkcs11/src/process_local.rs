//! Process-local state, which a fork's child must not touch.
//!
//! A child inherits the parent's state, which the parent's threads may have locked. So the state is a pointer that is
//! swapped, never a value that changes under a lock. The child recognises it by the process id, leaves it alone, and
//! starts anew.

use std::ops::Deref;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use hsmux_token::fork::{self, is_still, take_inherited};

/// The process whose marked descriptors are its own; 0 before the first.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The process that is closing what it has inherited at this moment; 0 for none.
static CLOSING: AtomicU32 = AtomicU32::new(0);

/// A place for one value, which belongs to the process that has put it there.
pub struct ProcessLocal<T> {
    current: ArcSwapOption<ProcessOwned<T>>,
    /// The process that is making a value at this moment; 0 for none.
    making: AtomicU32,
}

/// A value with the process that has made it; a fork's child is another.
pub struct ProcessOwned<T> {
    process: u32,
    value: T,
}

impl<T> Deref for ProcessOwned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> ProcessLocal<T> {
    /// Nothing.
    pub const fn empty() -> Self {
        Self {
            current: ArcSwapOption::const_empty(),
            making: AtomicU32::new(0),
        }
    }

    /// The value of this process.
    pub fn get(&self) -> Guard<Option<Arc<ProcessOwned<T>>>> {
        let current = self.current.load();
        match &*current {
            Some(owned) if owned.process != std::process::id() => {
                self.leave_to_parent(&current);
                drop(current);
                self.current.load()
            }
            _ => current,
        }
    }

    /// Puts a value there, unless this process has one. One thread at a time makes it.
    pub fn put<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<PutOutcome, E> {
        let process = std::process::id();
        let turn = MakingGuard::take(&self.making, process);
        if self.get().is_some() {
            return Ok(PutOutcome::Already);
        }
        // Whatever is marked from here on is this process's own.
        close_inherited();
        let value = make()?;
        self.current
            .store(Some(Arc::new(ProcessOwned { process, value })));
        drop(turn);
        Ok(PutOutcome::Done)
    }

    /// Takes the value of this process out.
    pub fn take(&self) -> Option<Arc<ProcessOwned<T>>> {
        drop(self.get());
        self.current.swap(None)
    }

    /// In a fork's child: leaves the parent's value alone. It is never dropped, since destructors would lock and
    /// talk.
    fn leave_to_parent(&self, inherited: &Guard<Option<Arc<ProcessOwned<T>>>>) {
        // One thread of the child does it; another one may have put the child's own value there, which stays.
        let was = Guard::into_inner(self.current.compare_and_swap(inherited, None));
        if was
            .as_ref()
            .is_some_and(|was| was.process != std::process::id())
        {
            close_inherited();
            std::mem::forget(was);
        }
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The result of [`ProcessLocal::put`].
#[derive(PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// Nothing: the value is the new one.
    Done,
    /// A value of this process, which stays.
    Already,
}

/// Closes inherited descriptors that the daemon, the parent's workers and other processes would notice. It runs once
/// in each process, before that opens its own. It reads and writes nothing, and waits for no lock of the parent's
/// threads.
#[allow(unsafe_code)]
fn close_inherited() {
    let process = std::process::id();
    if OWNER.load(Ordering::Acquire) == process {
        return;
    }
    let _turn = MakingGuard::take(&CLOSING, process);
    let owner = OWNER.load(Ordering::Acquire);
    if owner == 0 {
        heed_forks();
    }
    if owner == 0 || owner == process {
        OWNER.store(process, Ordering::Release);
        return;
    }
    for (inherited, inode) in take_inherited() {
        // SAFETY: it is only looked at; where the child has closed it, that fails.
        if !is_still(unsafe { BorrowedFd::borrow_raw(inherited) }, inode) {
            continue;
        }
        // SAFETY: what the parent owned it by is never dropped in this process, nor does any thread of it run here.
        drop(unsafe { OwnedFd::from_raw_fd(inherited) });
    }
    OWNER.store(process, Ordering::Release);
}

/// From here on no fork comes between the making of a descriptor and its mark. Children inherit this.
#[allow(unsafe_code)]
fn heed_forks() {
    let [before, parent, child] = [
        fork::before as unsafe extern "C" fn(),
        fork::after_in_parent,
        fork::after_in_child,
    ];
    // SAFETY: the handlers touch only counters; the C library forgets them when this library is unloaded. Without
    // memory for them, forks go unnoticed.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// Only one thread of a process goes on at a time. A lock would do, but for a fork in the middle.
struct MakingGuard<'a>(&'a AtomicU32);

impl<'a> MakingGuard<'a> {
    fn take(busy: &'a AtomicU32, process: u32) -> Self {
        loop {
            let seen = busy.load(Ordering::Acquire);
            let free = seen != process;
            if free
                && busy
                    .compare_exchange(seen, process, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return Self(busy);
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for MakingGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
