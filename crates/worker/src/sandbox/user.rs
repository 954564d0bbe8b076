//! Workers with a user of their own.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};

use hsmux_module::pin;
use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use rustix::fs::{Mode, OFlags};
use rustix::process::DumpableBehavior;

use crate::lock_memory;

/// Gives this process to a user for good. Answers the folder in which this user has its records of PINs, by a path for
/// which it needs no access to the state folder, which it cannot enter.
pub(super) fn become_user(user: &str, state: &Path) -> io::Result<PathBuf> {
    let user = find(user)?;
    let own = Uid::effective();
    if own == user.uid {
        return Ok(state.to_owned());
    }
    if !own.is_root() {
        return Err(io::Error::other(
            "only a daemon that root has started can give workers to a user",
        ));
    }
    let folder = pin::state_of_user(state, &user.name);
    hsmux_state::private_folder(&folder)?;
    lchown(&folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&folder, flags, Mode::empty())?;
    initgroups(&CString::new(user.name)?, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    if setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("the worker could become root again"));
    }
    lock_memory();
    // Another user may look into a process again (PR_SET_DUMPABLE in prctl(2)).
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd()).into();
    // It stays open as long as this process runs.
    let _ = folder.into_raw_fd();
    Ok(path)
}

fn find(user: &str) -> io::Result<User> {
    let found = match user.parse() {
        Ok(id) => User::from_uid(Uid::from_raw(id)),
        Err(_) => User::from_name(user),
    };
    found?.ok_or_else(|| io::Error::other("there is no such user"))
}
