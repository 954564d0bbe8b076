//! Sessions: a table of many, each with its own lock.

use std::sync::Arc;

use hsmux_token::NameMap;
use hsmux_token::ck::CKR_SESSION_HANDLE_INVALID;
use hsmux_token::sync::atomic::{AtomicU64, Ordering};
use hsmux_token::sync::{Mutex, MutexGuard, RwLock};
use smallvec::SmallVec;

use crate::crypt::ActiveOperation;
use crate::rv::{Result, Rv};

/// An open session.
pub struct Session {
    /// Its handle; never given twice.
    pub handle: u64,
    /// CKF_RW_SESSION.
    pub writes: bool,
    state: Mutex<SessionState>,
}

/// The operations of a session.
#[derive(Default)]
pub struct SessionState {
    /// Cryptographic operations, at most one of each function; one is the common case.
    pub active: SmallVec<[ActiveOperation; 1]>,
    /// The handles that C_FindObjects has still to give.
    pub search: Option<std::vec::IntoIter<u64>>,
}

impl Session {
    /// Two calls on one session are one after the other.
    pub fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock()
    }
}

/// The open sessions of the application.
#[derive(Default)]
pub struct Sessions {
    last: AtomicU64,
    open: AtomicU64,
    writing: AtomicU64,
    shards: [RwLock<NameMap<u64, Arc<Session>>>; 16],
}

impl Sessions {
    /// Opens one.
    pub fn open(&self, writes: bool) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Session {
            handle,
            writes,
            state: Mutex::default(),
        };
        self.open.fetch_add(1, Ordering::SeqCst);
        self.writing.fetch_add(writes.into(), Ordering::Relaxed);
        self.shard(handle).write().insert(handle, Arc::new(session));
        handle
    }

    /// The session of a handle.
    pub fn get(&self, handle: u64) -> Result<Arc<Session>> {
        let shard = self.shard(handle).read();
        shard
            .get(&handle)
            .map(Arc::clone)
            .ok_or(Rv(CKR_SESSION_HANDLE_INVALID))
    }

    /// Closes one; what it is doing on another thread ends by itself.
    pub fn close(&self, handle: u64) -> Result {
        let closed = self.shard(handle).write().remove(&handle);
        self.closed(&*closed.ok_or(Rv(CKR_SESSION_HANDLE_INVALID))?);
        Ok(())
    }

    /// Closes all.
    pub fn close_all(&self) {
        for shard in &self.shards {
            shard
                .write()
                .drain()
                .for_each(|(_, session)| self.closed(&session));
        }
    }

    fn closed(&self, session: &Session) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.writing
            .fetch_sub(session.writes.into(), Ordering::Relaxed);
    }

    /// Ends the operations of all sessions that were begun with a private key.
    pub fn end_private(&self) {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.read().values().map(Arc::clone));
        }
        // Without the shards' locks: a session that is at work is waited for.
        for session in all {
            session.state().active.retain(|active| !active.is_private());
        }
    }

    /// How many are open, and how many of them are read/write.
    pub fn count(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (count(&self.open), count(&self.writing))
    }

    /// True if a read-only session is open.
    pub fn any_read_only(&self) -> bool {
        let (open, writing) = self.count();
        open > writing
    }

    fn shard(&self, handle: u64) -> &RwLock<NameMap<u64, Arc<Session>>> {
        &self.shards[handle as usize % self.shards.len()]
    }
}
