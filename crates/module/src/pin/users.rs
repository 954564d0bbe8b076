//! Records of workers with a user of their own, in that user's folder.
//! A compromised module could link there to root's files, so root reads it with the rights of the folder's owner.

use std::fs;
use std::io::{Error as IoError, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsmux_token::Result;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::{Mode, OFlags};

use super::store::unwritable;

const USERS: &str = "users";

/// The state folder of workers with this user, within the daemon's.
pub fn state_of_user(state: &Path, user: &str) -> PathBuf {
    state.join(USERS).join(user)
}

/// All such folders: of every user for root, else only the daemon's own.
pub(super) fn states(state: &Path) -> Result<Vec<PathBuf>> {
    let users = state.join(USERS);
    let entries = match fs::read_dir(&users) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| unwritable(&users, &e))?,
    };
    let own = Uid::effective();
    let mut states = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| unwritable(&users, &e))?;
        let owner = entry.metadata().map_err(|e| unwritable(&users, &e))?.uid();
        if own.is_root() || owner == own.as_raw() {
            states.push(entry.path());
        }
    }
    Ok(states)
}

/// Runs some work in a folder with its owner's file system rights (setfsuid(2)), on a separate thread.
/// The folder's path needs no access to the folders above.
pub(super) fn as_owner<T: Send>(
    folder: &Path,
    work: impl FnOnce(&Path) -> Result<T> + Send,
) -> Result<T> {
    let failed = |e: IoError| unwritable(folder, &e);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = rustix::fs::open(folder, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    let owner = rustix::fs::fstat(&open).map_err(|e| failed(e.into()))?;
    let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    let as_owner = || {
        setfsgid(gid);
        setfsuid(uid);
        // setfsuid(2) reports no failure, only the previous user.
        if setfsuid(uid) != uid {
            return Err(failed(ErrorKind::PermissionDenied.into()));
        }
        work(&path)
    };
    std::thread::scope(|scope| scope.spawn(as_owner).join())
        .unwrap_or_else(|_| Err(failed(IoError::other("a panic"))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// A folder of another user, if root runs the test.
    fn of_another() -> (tempfile::TempDir, Uid) {
        let folder = tempfile::tempdir().unwrap();
        let own = Uid::effective();
        let owner = if own.is_root() {
            Uid::from_raw(65534)
        } else {
            own
        };
        chown(folder.path(), Some(owner.as_raw()), None).unwrap();
        (folder, owner)
    }

    #[test]
    fn what_is_written_there_is_the_owners() {
        let (folder, owner) = of_another();
        let write = |folder: &Path| {
            fs::write(folder.join("record"), "").unwrap();
            Ok(())
        };
        as_owner(folder.path(), write).unwrap();
        let record = fs::metadata(folder.path().join("record")).unwrap();
        assert_eq!(record.uid(), owner.as_raw());
        // This thread keeps its user.
        let own = tempfile::tempdir().unwrap();
        let uid = fs::metadata(own.path()).unwrap().uid();
        assert_eq!(uid, Uid::effective().as_raw());
    }

    #[test]
    fn a_link_of_the_owner_leads_root_to_nothing_that_is_not_the_owners() {
        let (folder, owner) = of_another();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("nologin");
        symlink(&target, folder.path().join("record.lock")).unwrap();
        let write = |folder: &Path| Ok(fs::write(folder.join("record.lock"), "").is_ok());
        let own = owner == Uid::effective();
        assert_eq!(as_owner(folder.path(), write).unwrap(), own);
        assert_eq!(target.exists(), own);
    }
}
