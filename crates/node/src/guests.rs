//! Connections that are open: whose they are, and who has to go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::certificate::Shown;

/// All open connections.
#[derive(Default)]
pub struct Guests {
    open: Mutex<HashMap<u64, Guest>>,
    next: AtomicU64,
}

struct Guest {
    shown: Shown,
    leave: Arc<Notify>,
}

/// One of them, for as long as it is open.
pub struct Stay {
    guests: Arc<Guests>,
    number: u64,
    /// Told when it has to go.
    pub leave: Arc<Notify>,
}

impl Guests {
    /// Takes one in.
    pub fn enter(self: &Arc<Self>, shown: Shown) -> Stay {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let leave = Arc::new(Notify::new());
        let guest = Guest {
            shown,
            leave: Arc::clone(&leave),
        };
        self.open.lock().insert(number, guest);
        Stay {
            guests: Arc::clone(self),
            number,
            leave,
        }
    }

    /// Sends those away who may not stay; answers their names.
    pub fn dismiss(&self, stays: impl Fn(&Shown) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for guest in self.open.lock().values() {
            if !stays(&guest.shown) {
                guest.leave.notify_one();
                names.push(guest.shown.name.clone());
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.guests.open.lock().remove(&self.number);
    }
}
