//! Operations with long data at once. The daemon holds their frames within the memory of one user, and a frame for which
//! it has no room would end the broker's connections.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Longer data are bulky, in bytes, with the answer. Other frames fit for all connections at once.
pub const BULKY: usize = 16 << 10;

/// Bulky operations at once. The daemon reads up to 66 KiB of each before there is room for it, and has 64 MiB for these.
const AT_ONCE: usize = 384;

/// Those of one client.
const OF_CLIENT: usize = 128;

/// The turns of bulky operations.
pub struct BulkyTurns {
    all: Semaphore,
    of_clients: Mutex<HashMap<u64, Weak<Semaphore>>>,
}

impl Default for BulkyTurns {
    fn default() -> Self {
        Self {
            all: Semaphore::new(AT_ONCE),
            of_clients: Mutex::default(),
        }
    }
}

/// The turn of one operation, until it is dropped.
pub struct BulkyTurn<'a> {
    all: Option<SemaphorePermit<'a>>,
    own: Arc<Semaphore>,
}

impl BulkyTurns {
    /// Waits for a turn of this client.
    pub async fn take(&self, client: u64) -> BulkyTurn<'_> {
        let own = self.of(client);
        // First the client's: what waits for that takes no turn of others. No semaphore is ever closed.
        if let Ok(permit) = own.acquire().await {
            permit.forget();
        }
        let mut turn = BulkyTurn { all: None, own };
        turn.all = self.all.acquire().await.ok();
        turn
    }

    fn of(&self, client: u64) -> Arc<Semaphore> {
        let mut of_clients = self.of_clients.lock();
        if let Some(own) = of_clients.get(&client).and_then(Weak::upgrade) {
            return own;
        }
        of_clients.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(OF_CLIENT));
        of_clients.insert(client, Arc::downgrade(&own));
        own
    }
}

impl Drop for BulkyTurn<'_> {
    fn drop(&mut self) {
        drop(self.all.take());
        self.own.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_client_has_so_many_at_once_and_leaves_turns_to_others() {
        let turns = BulkyTurns::default();
        let take = |client| turns.take(client).now_or_never();
        let mut held: Vec<_> = (0..OF_CLIENT).filter_map(|_| take(1)).collect();
        assert_eq!(held.len(), OF_CLIENT);
        assert!(take(1).is_none());
        held.extend((2..4).flat_map(|client| (0..OF_CLIENT).filter_map(move |_| take(client))));
        assert_eq!(held.len(), AT_ONCE);
        assert!(take(5).is_none(), "all are taken");
        held.pop();
        assert!(take(5).is_some());
        drop(held);
        assert!(take(1).is_some());
        assert_eq!(turns.of_clients.lock().len(), 1, "others are forgotten");
    }
}
