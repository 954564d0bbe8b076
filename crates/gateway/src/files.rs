//! Files that connections take: a process may have only so many.
//!
//! Each is counted while it is held, and none before: a client's connection is one, a handshake that waits for its
//! signature is no more, and what is behind an established one, a connection to a backend or an open file of a folder,
//! is another.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Those that nobody holds.
#[derive(Clone)]
pub struct Files {
    left: Arc<Semaphore>,
    /// So many are no new client's: who is established needs them.
    behind: usize,
}

/// One, until this is dropped.
pub struct Held(#[allow(dead_code)] OwnedSemaphorePermit);

/// Of all that the process may have, this part is for what is behind alone. As large a part is for what is no
/// connection of the gateway's: workers of tokens, programs, logs.
const PART: usize = 8;

/// Which takes as many in small processes, too.
const OTHERS: usize = 64;

impl Files {
    /// Of a process that may have so many.
    pub fn of(process: usize) -> Self {
        let process = process.min(Semaphore::MAX_PERMITS);
        let part = process / PART;
        Self {
            left: Arc::new(Semaphore::new(process.saturating_sub(part.max(OTHERS)))),
            behind: part,
        }
    }

    /// How many clients' connections there may be.
    pub fn of_clients(&self) -> usize {
        self.left().saturating_sub(self.behind)
    }

    /// How many are for what is behind alone.
    pub fn of_backends(&self) -> usize {
        self.behind
    }

    /// For a client's connection.
    pub fn client(&self) -> Option<Held> {
        // Two who ask at the same moment may have one of the others: a few more or less are no matter.
        (self.left() > self.behind).then(|| self.behind())?
    }

    /// For what is behind, at once.
    pub fn behind(&self) -> Option<Held> {
        let file = Arc::clone(&self.left).try_acquire_owned();
        file.ok().map(Held)
    }

    /// The same, where it is worth waiting for: connections that nobody uses are closed within seconds.
    pub async fn behind_within(&self, patience: Duration) -> Option<Held> {
        let file = Arc::clone(&self.left).acquire_owned();
        timeout(patience, file).await.ok()?.ok().map(Held)
    }

    /// How many.
    pub fn left(&self) -> usize {
        self.left.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_leave_some_for_what_is_behind() {
        let files = Files::of(134);
        let clients: Vec<_> = std::iter::from_fn(|| files.client()).collect();
        assert_eq!((clients.len(), files.left()), (54, 16));
        let mut behind: Vec<_> = std::iter::from_fn(|| files.behind()).collect();
        assert_eq!((behind.len(), files.left()), (16, 0));
        let soon = Duration::from_millis(1);
        assert!(files.behind_within(soon).await.is_none());
        behind.pop();
        assert!(files.client().is_none());
        assert!(files.behind_within(soon).await.is_some());
        drop(clients);
        assert!(files.client().is_some());
    }

    /// Ten thousand handshakes wait in a process that may have twenty thousand files.
    #[test]
    fn a_handshake_that_waits_is_one_file() {
        let files = Files::of(20_000);
        let clients: Vec<_> = std::iter::from_fn(|| files.client()).collect();
        assert_eq!(clients.len(), 15_000);
        for process in [0, usize::MAX] {
            Files::of(process);
        }
    }
}
