//! Processes that hold PINs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// To be called before a PIN comes to this process: no core file, no debugger.
pub fn keep_secrets() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Takes what the parent says off standard input, where a module might read from it, or leave it to
/// a child of its own.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let taken = io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(taken)
}
