//! The library's one state: not initialised, or an [`App`].
//!
//! A fork's child inherits the parent's state, and must not touch what its threads may have locked.
//! So the state is a pointer that is swapped, never a value that is changed under a lock; the child
//! knows it by the process id, lets go of it as it is, and starts anew.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use hsmux_token::ck::*;
use hsmux_token::fork::{is_still, take_inherited};

use crate::app::App;
use crate::backend::Backend;
use crate::rv::{Result, Rv};

static CURRENT: ArcSwapOption<App> = ArcSwapOption::const_empty();

/// The process that is in C_Initialize at this moment; 0 for none.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// Runs a call on the library's state, or fails with CKR_CRYPTOKI_NOT_INITIALIZED.
pub fn with<T>(call: impl FnOnce(&App) -> Result<T>) -> Result<T> {
    match &*current() {
        Some(app) => call(app),
        None => Err(Rv(CKR_CRYPTOKI_NOT_INITIALIZED)),
    }
}

fn current() -> Guard<Option<Arc<App>>> {
    let current = CURRENT.load();
    match &*current {
        Some(app) if app.process != std::process::id() => {
            drop(current);
            leave_to_parent();
            CURRENT.load()
        }
        _ => current,
    }
}

/// In a fork's child: what was inherited is the parent's. It stays as it is, and is never dropped: destructors would
/// lock and talk.
fn leave_to_parent() {
    if let Some(inherited) = CURRENT.swap(None) {
        if inherited.process == std::process::id() {
            // Another thread of the child has been faster, and initialised already.
            CURRENT.store(Some(inherited));
            return;
        }
        close_inherited();
        std::mem::forget(inherited);
    }
}

/// What the daemon, the parent's workers and other processes would notice is closed; no byte is written or read, and no
/// lock is waited for that a thread of the parent may hold.
#[allow(unsafe_code)]
fn close_inherited() {
    for (inherited, inode) in take_inherited() {
        // SAFETY: it is only looked at; where the child has closed it, that fails.
        if !is_still(unsafe { BorrowedFd::borrow_raw(inherited) }, inode) {
            continue;
        }
        // SAFETY: what the parent owned it by is never dropped in this process, nor does any thread of it run here.
        drop(unsafe { OwnedFd::from_raw_fd(inherited) });
    }
}

/// C_Initialize, on the backend that `make` gives.
pub fn initialise(make: impl FnOnce() -> hsmux_token::Result<Box<dyn Backend>>) -> Result {
    let process = std::process::id();
    let turn = Turn::take(process);
    if current().is_some() {
        return Err(Rv(CKR_CRYPTOKI_ALREADY_INITIALIZED));
    }
    let backend = make().map_err(|error| {
        crate::debug::always(&error);
        Rv(error.code().unwrap_or(CKR_GENERAL_ERROR))
    })?;
    CURRENT.store(Some(Arc::new(App::new(backend))));
    drop(turn);
    Ok(())
}

/// C_Finalize: sessions, their objects and the login end with the connections. Calls that are running
/// on other threads come to their own end.
pub fn finalise() -> Result {
    with(|_| Ok(()))?;
    match CURRENT.swap(None) {
        Some(_) => Ok(()),
        None => Err(Rv(CKR_CRYPTOKI_NOT_INITIALIZED)),
    }
}

/// Only one thread of a process initialises at a time. A lock would do, but for a fork in the middle.
struct Turn;

impl Turn {
    fn take(process: u32) -> Self {
        loop {
            let seen = STARTING.load(Ordering::Acquire);
            let free = seen != process;
            if free
                && STARTING
                    .compare_exchange(seen, process, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return Self;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        STARTING.store(0, Ordering::Release);
    }
}
