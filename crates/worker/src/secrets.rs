//! Processes that hold PINs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};

/// To be called before a PIN comes to this process: no core file, no debugger.
pub fn keep_secrets() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Removes the limit of locked memory (`RLIMIT_MEMLOCK`), for processes that this one starts, too. Whether there is none
/// now; if there is one, the log says so.
pub fn allow_locked_memory() -> bool {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let capable = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::IPC_LOCK);
    let allowed = rustix::process::setrlimit(Resource::Memlock, unlimited).is_ok()
        || capabilities(None).is_ok_and(capable);
    if !allowed {
        tracing::debug!(
            "RLIMIT_MEMLOCK is limited: workers do not lock their memory, and PINs may reach the swap space"
        );
    }
    allowed
}

/// Keeps all memory of this process off the swap space, its module's copies of a PIN included. Pages that are never used
/// take no memory. Under a limit nothing is locked: memory that comes later would be refused past it.
pub fn lock_memory() {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let locked = allow_locked_memory() && mlockall(all).is_ok();
    if !locked {
        // Another user may have locked it, whom no limit bound.
        let _ = munlockall();
    }
}

/// Takes what the parent says off standard input, where a module might read from it, or leave it to
/// a child of its own.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let taken = io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(taken)
}
