//! Budget of the files that connections hold: a process may have only so many.
//!
//! A client's connection is one file, also while its handshake waits for a signature. A connection to a backend and an
//! open file of a folder are one each. None is reserved before it is opened.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The files that are left.
#[derive(Clone)]
pub struct FileBudget {
    left: Arc<Semaphore>,
    /// Files that new clients do not get: established ones need them for backends and folders.
    reserved: usize,
}

/// One file, until this is dropped.
pub struct FilePermit(#[allow(dead_code)] OwnedSemaphorePermit);

/// An eighth of the process's files is for backends and folders alone. Another eighth is for all else that a process
/// opens, such as logs.
const PART: usize = 8;

/// The least that all else gets, in small processes.
const OTHERS: usize = 64;

impl FileBudget {
    /// The budget of a process that may open so many files.
    pub fn of(process: usize) -> Self {
        let process = process.min(Semaphore::MAX_PERMITS);
        let part = process / PART;
        Self {
            left: Arc::new(Semaphore::new(process.saturating_sub(part.max(OTHERS)))),
            reserved: part,
        }
    }

    /// How many clients' connections there may be.
    pub fn client_limit(&self) -> usize {
        self.left().saturating_sub(self.reserved)
    }

    /// How many files are for backends and folders alone.
    pub fn backend_reserve(&self) -> usize {
        self.reserved
    }

    /// Takes a file for a client's connection.
    pub fn for_client(&self) -> Option<FilePermit> {
        // Two at the same moment may take one of the others. A few more or less do not matter.
        (self.left() > self.reserved).then(|| self.for_backend())?
    }

    /// Takes a file for a backend or a folder, without waiting.
    pub fn for_backend(&self) -> Option<FilePermit> {
        let file = Arc::clone(&self.left).try_acquire_owned();
        file.ok().map(FilePermit)
    }

    /// Takes a file for a backend or a folder, and waits for it: idle connections are closed within seconds.
    pub async fn wait_for_backend(&self, patience: Duration) -> Option<FilePermit> {
        let file = Arc::clone(&self.left).acquire_owned();
        timeout(patience, file).await.ok()?.ok().map(FilePermit)
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.left.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_leave_files_for_backends() {
        let files = FileBudget::of(134);
        let clients: Vec<_> = std::iter::from_fn(|| files.for_client()).collect();
        assert_eq!((clients.len(), files.left()), (54, 16));
        let mut reserved: Vec<_> = std::iter::from_fn(|| files.for_backend()).collect();
        assert_eq!((reserved.len(), files.left()), (16, 0));
        let soon = Duration::from_millis(1);
        assert!(files.wait_for_backend(soon).await.is_none());
        reserved.pop();
        assert!(files.for_client().is_none());
        assert!(files.wait_for_backend(soon).await.is_some());
        drop(clients);
        assert!(files.for_client().is_some());
    }

    /// Ten thousand handshakes wait in a process that may have twenty thousand files.
    #[test]
    fn a_waiting_handshake_takes_one_file() {
        let files = FileBudget::of(20_000);
        let clients: Vec<_> = std::iter::from_fn(|| files.for_client()).collect();
        assert_eq!(clients.len(), 15_000);
        for process in [0, usize::MAX] {
            FileBudget::of(process);
        }
    }
}
