//! A module's file as dlopen(3) gets it: as it is, or a copy, which is another module to it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// dlopen(3): is it loaded? The same number with glibc and musl.
const RTLD_NOLOAD: i32 = 4;

/// Bytes that memfd_create(2) takes of a name.
const NAME_MAX: usize = 249;

/// What is loaded. To be dropped after the code is unloaded.
pub(super) struct Image {
    path: PathBuf,
    /// Open for as long as the code is loaded: dlopen(3) takes a path that it knows for what it has loaded from there,
    /// and the next copy would have this number again.
    copy: Option<OwnedFd>,
}

impl Image {
    /// The file itself: dlopen(3) answers with what it has loaded already.
    pub fn itself(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            copy: None,
        }
    }

    /// A copy in memory (memfd_create(2)): its variables are its own, and begin anew. What it needs beside it must be
    /// loaded already, for it is not found from where the copy is.
    pub fn copy(path: &Path) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut copy = File::from(memfd_create(called(path), flags)?);
        io::copy(&mut File::open(path)?, &mut copy)?;
        // Code that runs does not change.
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
        // SAFETY: with RTLD_NOLOAD nothing is loaded, so that no constructor runs.
        let loaded = unsafe { Library::open(Some(&self.path), RTLD_LAZY | RTLD_NOLOAD) };
        if loaded.is_ok() {
            // Some code cannot be unloaded.
            std::mem::forget(copy);
        }
    }
}

/// What the copy is called in /proc/self/maps: as its file, as far as there is room.
fn called(path: &Path) -> &[u8] {
    let path = path.as_os_str().as_bytes();
    path.get(path.len().saturating_sub(NAME_MAX)..)
        .unwrap_or(path)
}
