//! Blocking work on a folder's files, on threads beside the runtime's. A file system may hang, such as NFS without its
//! server or FUSE without its program. Then only requests for that folder wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{CWD, FsWord, Mode, OFlags, fstatfs, openat};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Threads that one folder may take. The runtime has 512 for all.
const AT_ONCE: usize = 32;

/// How long a request waits for a thread, and then for the file system. After that the work still goes on and keeps its
/// thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the answer to "is this folder local" is cached.
const BELIEVED: Duration = Duration::from_secs(1);

/// The work on every folder.
#[derive(Default)]
pub struct BlockingReads(Mutex<HashMap<PathBuf, FolderReads>>);

/// The work on one folder.
#[derive(Clone)]
pub struct FolderReads(Arc<Folder>);

struct Folder {
    path: PathBuf,
    permits: Arc<Semaphore>,
    /// Whether it is on a local disk, and when that was read.
    local: Mutex<Option<(bool, Instant)>>,
}

impl BlockingReads {
    pub fn of(&self, folder: &Path) -> FolderReads {
        let mut all = self.0.lock();
        if let Some(known) = all.get(folder) {
            return known.clone();
        }
        let new = FolderReads(Arc::new(Folder {
            path: folder.to_owned(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            local: Mutex::default(),
        }));
        all.insert(folder.to_owned(), new.clone());
        new
    }
}

impl FolderReads {
    pub fn folder(&self) -> &Path {
        &self.0.path
    }

    /// Whether the folder is on a local disk. File systems that are mounted below it may not be.
    pub async fn is_local(&self) -> bool {
        if let Some((local, seen)) = *self.0.local.lock()
            && seen.elapsed() < BELIEVED
        {
            return local;
        }
        let this = Arc::clone(&self.0);
        let look = move || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(is_local(&openat(CWD, &this.path, flags, Mode::empty())?))
        };
        let local = self.run(look).await.unwrap_or(false);
        *self.0.local.lock() = Some((local, Instant::now()));
        local
    }

    /// Runs work on another thread. It is not cancelled when its caller stops waiting.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.run_within(PATIENCE, work).await
    }

    async fn run_within<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = timeout(patience, Arc::clone(&self.0.permits).acquire_owned()).await;
        let permit = permit.map_err(late)?.map_err(io::Error::other)?;
        let running = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        let done = timeout(patience, running).await.map_err(late)?;
        done.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }
}

fn late<E>(_: E) -> io::Error {
    let message = "the file system does not answer";
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// File systems on local disks or in memory (statfs(2)). All others may depend on another machine or process.
const OF_THIS_MACHINE: [FsWord; 9] = [
    0x0102_1994, // tmpfs
    0x2fc1_2fc1, // ZFS
    0x5846_5342, // XFS
    0x7371_7368, // squashfs
    0x794c_7630, // overlayfs
    0x9123_683e, // Btrfs
    0xca45_1a4e, // bcachefs
    0xef53,      // ext2, ext3, ext4
    0xf2f5_2010, // F2FS
];

/// Whether a file is on a local disk. Such a file can be read without another thread.
pub fn is_local(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|system| OF_THIS_MACHINE.contains(&system.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_hanging_folder_takes_only_its_own_threads() {
        let all = BlockingReads::default();
        let (dead, alive) = (all.of(Path::new("/dead")), all.of(Path::new("/alive")));
        let (end, ends) = mpsc::channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        for _ in 0..=AT_ONCE {
            let (dead, ends) = (all.of(Path::new("/dead")), Arc::clone(&ends));
            tokio::spawn(async move { dead.run(move || Ok(ends.lock().recv().is_ok())).await });
        }
        while dead.0.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(alive.run(|| Ok(7)).await.unwrap(), 7);
        drop(end);
        assert_eq!(dead.run(|| Ok(8)).await.unwrap(), 8);
    }

    #[tokio::test]
    async fn a_hanging_read_times_out() {
        let reads = BlockingReads::default().of(Path::new("/dead"));
        let (end, ends) = mpsc::channel::<()>();
        let soon = Duration::from_millis(10);
        let late = reads.run_within(soon, move || Ok(ends.recv().is_ok()));
        let late = late.await;
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(end);
    }

    #[test]
    fn a_disk_is_local_and_procfs_is_not() {
        let here = tempfile::tempfile().unwrap();
        assert!(is_local(&here));
        assert!(!is_local(std::fs::File::open("/proc/version").unwrap()));
    }
}
