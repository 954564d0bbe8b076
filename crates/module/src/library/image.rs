//! A module's file for dlopen(3): the original, or a copy that dlopen(3) treats as another module.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// dlopen(3): find only what is loaded. The same value in glibc and musl.
const RTLD_NOLOAD: i32 = 4;

/// The maximum length of a name for memfd_create(2).
const NAME_MAX: usize = 249;

/// The loaded file. Drop it only after the code is unloaded.
pub(super) struct Image {
    path: PathBuf,
    /// Open while the code is loaded. dlopen(3) identifies loaded files by path,
    /// and the next copy could get the same descriptor number.
    copy: Option<OwnedFd>,
}

impl Image {
    /// The file itself: dlopen(3) returns the module that is already loaded from it.
    pub fn itself(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            copy: None,
        }
    }

    /// A copy in memory (memfd_create(2)) with variables of its own. Its libraries must be loaded already,
    /// because dlopen(3) does not find them from the copy's path.
    pub fn copy(path: &Path) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut copy = File::from(memfd_create(called(path), flags)?);
        io::copy(&mut File::open(path)?, &mut copy)?;
        // Sealed, because the code of a running module must not change.
        fcntl_add_seals(
            &copy,
            SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        Ok(Self {
            path: format!("/proc/self/fd/{}", copy.as_raw_fd()).into(),
            copy: Some(copy.into()),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        use libloading::os::unix::{Library, RTLD_LAZY};
        let Some(copy) = self.copy.take() else { return };
        // SAFETY: with RTLD_NOLOAD nothing is loaded, and no constructor runs.
        let loaded = unsafe { Library::open(Some(&self.path), RTLD_LAZY | RTLD_NOLOAD) };
        if loaded.is_ok() {
            // Some code cannot be unloaded.
            std::mem::forget(copy);
        }
    }
}

/// The copy's name in /proc/self/maps: that of its file, as far as it fits.
fn called(path: &Path) -> &[u8] {
    let path = path.as_os_str().as_bytes();
    path.get(path.len().saturating_sub(NAME_MAX)..)
        .unwrap_or(path)
}
