//! What the reactor watches, and how many users it is of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_token::NameMap;
use hsmux_token::sync::Mutex;

use super::{Source, User};

/// Sources by their numbers.
#[derive(Default)]
pub(super) struct Sources {
    all: Mutex<All>,
    users: AtomicUsize,
}

#[derive(Default)]
struct All {
    by_id: NameMap<u64, Arc<dyn Source>>,
    /// How many each user has.
    users: HashMap<User, usize>,
}

impl Sources {
    /// Users that have sources.
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Relaxed)
    }

    pub fn insert(&self, id: u64, source: Arc<dyn Source>) {
        let user = source.user();
        let mut all = self.all.lock();
        all.by_id.insert(id, source);
        if let Some(user) = user {
            *all.users.entry(user).or_default() += 1;
            self.users.store(all.users.len(), Ordering::Relaxed);
        }
    }

    /// To be dropped by the caller, who may hold no lock: the source may hold others.
    #[must_use]
    pub fn remove(&self, id: u64) -> Option<Arc<dyn Source>> {
        let mut all = self.all.lock();
        let source = all.by_id.remove(&id)?;
        if let Some(user) = source.user()
            && let Some(count) = all.users.get_mut(&user)
        {
            *count -= 1;
            if *count == 0 {
                all.users.remove(&user);
                self.users.store(all.users.len(), Ordering::Relaxed);
            }
        }
        Some(source)
    }

    pub fn get(&self, id: u64) -> Option<Arc<dyn Source>> {
        self.all.lock().by_id.get(&id).cloned()
    }

    /// Whose it is; `None`: everybody's, or gone.
    pub fn user(&self, id: u64) -> Option<User> {
        self.all.lock().by_id.get(&id)?.user()
    }

    /// Takes all of them out.
    pub fn take(&self) -> Vec<Arc<dyn Source>> {
        let left = std::mem::take(&mut *self.all.lock());
        left.by_id.into_values().collect()
    }
}
