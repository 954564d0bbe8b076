//! Uses of a GCM key, counted over all its replicas: random nonces must not repeat.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hsmux_token::{Error, ObjectId, Result};

use crate::refusal::Refusal;
use crate::store::{LIMIT, Store};

/// The number of times that a key may still encipher. Uses are reserved on disk before they are handed out.
pub struct Budget {
    object: ObjectId,
    /// The next use, which is handed out if it is before `end`.
    next: AtomicU64,
    /// The end of the block that was reserved last.
    end: AtomicU64,
    /// Held during a reservation, with the last failure: tasks that waited meanwhile get the same answer.
    turn: tokio::sync::Mutex<Option<(Instant, Error)>>,
}

impl Budget {
    /// Continues at the end of the store's reservations: the rest of the last block is lost.
    pub fn load(store: &Store, object: ObjectId) -> Result<Self> {
        let reserved = store.reserved(&object)?;
        Ok(Self {
            object,
            next: AtomicU64::new(reserved),
            end: AtomicU64::new(reserved),
            turn: tokio::sync::Mutex::new(None),
        })
    }

    /// One use.
    pub async fn take(&self, store: &Arc<Store>) -> Result<(), Refusal> {
        let begun = Instant::now();
        while !self.take_reserved() {
            let mut turn = self.turn.lock().await;
            if self.left() {
                continue;
            }
            if let Some((at, error)) = &*turn
                && *at > begun
            {
                return Err(error.clone().into());
            }
            let object = self.object;
            match store.run(move |store| store.reserve(&object)).await {
                // The order matters: between the two stores another task must not take a use of the new block with
                // the old end.
                Ok(Some(block)) => {
                    self.next.store(block.start, Ordering::SeqCst);
                    self.end.store(block.end, Ordering::SeqCst);
                }
                Ok(None) => {
                    return Err(Refusal::bad(
                        "this version of the key has enciphered as often as it safely may, or was \
                         restored from a backup; it only deciphers: rotate the key, or make a managed \
                         one where it is a key of others",
                    ));
                }
                Err(error) => {
                    *turn = Some((Instant::now(), error.clone()));
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn take_reserved(&self) -> bool {
        let within = |next: u64| (next < self.end.load(Ordering::SeqCst)).then_some(next + 1);
        let taken = self
            .next
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, within);
        taken.is_ok()
    }

    fn left(&self) -> bool {
        self.next.load(Ordering::SeqCst) < self.end.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {LIMIT}", self.next.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::BLOCK;
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
        // A crash loses the rest of the block.
        let again = Budget::load(&store, object()).unwrap();
        again.take(&store).await.unwrap();
        assert_eq!(store.reserved(&object()).unwrap(), 2 * BLOCK);
    }

    #[tokio::test]
    async fn a_key_that_is_used_up_enciphers_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        store.exhaust(&object()).unwrap();
        let budget = Budget::load(&store, object()).unwrap();
        let refused = budget.take(&store).await.unwrap_err();
        assert!(refused.text().contains("rotate"), "{refused:?}");
        assert_eq!(store.reserved(&object()).unwrap(), LIMIT);
    }

    /// Like two processes with one store: no block goes to both.
    #[tokio::test]
    async fn two_budgets_of_a_key_have_blocks_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let budgets = [0, 1].map(|_| Budget::load(&store, object()).unwrap());
        for budget in &budgets {
            budget.take(&store).await.unwrap();
            budget.take(&store).await.unwrap();
        }
        let [next, other] = budgets.map(|budget| budget.next.into_inner());
        assert_eq!((next, other), (2, BLOCK + 2));
        assert_eq!(store.reserved(&object()).unwrap(), 2 * BLOCK);
    }

    #[tokio::test]
    async fn all_of_a_block_is_handed_out_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let budget = Arc::new(Budget::load(&store, object()).unwrap());
        for _ in 0..BLOCK {
            budget.take(&store).await.unwrap();
        }
        assert_eq!(store.reserved(&object()).unwrap(), BLOCK);
        budget.take(&store).await.unwrap();
        assert_eq!(store.reserved(&object()).unwrap(), 2 * BLOCK);
    }
}
