//! Uses of a GCM key, counted over all its replicas: random nonces must not meet.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hsmux_token::{ObjectId, Result};

use crate::refusal::Refusal;
use crate::store::{BLOCK, LIMIT, Store};

/// How often a key may still encipher. What is handed out was reserved on disk before.
pub struct Budget {
    object: ObjectId,
    used: AtomicU64,
    reserved: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl Budget {
    /// Goes on where the store's reservations end: what was left of the last block is lost.
    pub fn load(store: &Store, object: ObjectId) -> Result<Self> {
        let reserved = store.reserved(&object)?;
        Ok(Self {
            object,
            used: AtomicU64::new(reserved),
            reserved: AtomicU64::new(reserved),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// Whether the key only deciphers from now on.
    pub fn is_spent(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= LIMIT
    }

    /// One use.
    pub async fn take(&self, store: &Arc<Store>) -> Result<(), Refusal> {
        let mine = self.used.fetch_add(1, Ordering::Relaxed);
        while mine >= self.reserved.load(Ordering::Acquire) {
            let _turn = self.turn.lock().await;
            let reserved = self.reserved.load(Ordering::Acquire);
            if mine < reserved {
                break;
            }
            if mine >= LIMIT {
                return Err(Refusal::bad(
                    "this version of the key has enciphered as often as it safely may, or was \
                     restored from a backup; it only deciphers: rotate the key",
                ));
            }
            let (object, upto) = (self.object, (reserved + BLOCK).min(LIMIT));
            store.run(move |store| store.reserve(&object, upto)).await?;
            self.reserved.store(upto, Ordering::Release);
        }
        Ok(())
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {LIMIT}", self.used.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::Class;

    fn object() -> ObjectId {
        ObjectId {
            class: Class::SECRET_KEY,
            name: [1; 32],
        }
    }

    fn store(folder: &tempfile::TempDir) -> Arc<Store> {
        Arc::new(Store::open(&folder.path().join("broker.sqlite")).unwrap())
    }

    #[tokio::test]
    async fn no_use_is_handed_out_before_it_is_reserved() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let budget = Budget::load(&store, object()).unwrap();
        budget.take(&store).await.unwrap();
        assert_eq!(store.reserved(&object()).unwrap(), BLOCK);
        // After a crash the rest of the block is gone.
        let again = Budget::load(&store, object()).unwrap();
        again.take(&store).await.unwrap();
        assert_eq!(store.reserved(&object()).unwrap(), 2 * BLOCK);
    }

    #[tokio::test]
    async fn a_key_that_is_used_up_enciphers_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        store.reserve(&object(), LIMIT - 1).unwrap();
        let budget = Budget::load(&store, object()).unwrap();
        budget.take(&store).await.unwrap();
        assert!(budget.is_spent());
        let refused = budget.take(&store).await.unwrap_err();
        assert!(refused.text().contains("rotate"), "{refused:?}");
        assert_eq!(store.reserved(&object()).unwrap(), LIMIT);
    }
}
