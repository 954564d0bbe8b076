//! Slots of connections that local users make: how many there may be, and whose goes where all are taken.

use std::sync::{Arc, Weak};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Slots};
use rustix::process::{Resource, getrlimit};

use crate::caller::Caller;

/// Connections that one listener holds open at once.
const MAX_CALLERS: usize = 8192;

/// Connections that all listeners hold open at once.
const MAX_ALL: usize = 2 * MAX_CALLERS;

/// Connections that one user holds open at once, over all listeners.
const MAX_OF_USER: usize = MAX_CALLERS / 2;

/// The connections of some listeners, by user id.
#[derive(Clone, Default)]
pub(crate) struct UserSlots(Arc<Mutex<Slots<u32, Weak<Caller>>>>);

/// The connections of all listeners of a reactor. Half of this process's files are for them, and a quarter for one user.
#[derive(Clone)]
pub(crate) struct AllSlots {
    slots: UserSlots,
    most: usize,
    most_of_user: usize,
}

/// One of them, for as long as its connection lives.
struct UserSlot {
    of: UserSlots,
    account: u32,
    number: u64,
}

/// The slots of one connection: at its listener, and over all.
pub(crate) struct TakenSlots {
    _slots: [UserSlot; 2],
}

/// Takes slots for a connection of this user. An error says why there are none.
pub(crate) fn take(
    caller: &Arc<Caller>,
    account: u32,
    listener: &UserSlots,
    all: &AllSlots,
) -> Result<TakenSlots, Error> {
    let most_of_user = all.most_of_user;
    let busy = |message| Error::pool(Kind::Busy, message);
    if all.slots.0.lock().of(account) >= most_of_user {
        let message = format!("{most_of_user} connections of this user are open, its share");
        return Err(busy(message));
    }
    let bounded = [(listener, MAX_CALLERS), (&all.slots, all.most)];
    for (slots, most) in bounded {
        if slots.is_full(most) && slots.gives_way_to(account).is_none() {
            let message = format!("{most} connections are open, which is all that may");
            return Err(busy(message));
        }
    }
    for (slots, most) in bounded {
        if slots.is_full(most) {
            slots.make_room(account);
        }
    }
    Ok(TakenSlots {
        _slots: [listener, &all.slots].map(|slots| slots.insert(account, caller)),
    })
}

impl AllSlots {
    pub fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |files| {
            usize::try_from(files).unwrap_or(usize::MAX)
        });
        Self {
            slots: UserSlots::default(),
            most: MAX_ALL.min(files / 2),
            most_of_user: MAX_OF_USER.min(files / 4),
        }
    }
}

impl UserSlots {
    fn is_full(&self, most: usize) -> bool {
        self.0.lock().len() >= most
    }

    /// The user with the most connections, if this one would not have as many with one more.
    fn gives_way_to(&self, account: u32) -> Option<u32> {
        let slots = self.0.lock();
        let (largest, count) = slots.largest()?;
        (slots.of(account) + 1 < count).then_some(largest)
    }

    fn make_room(&self, account: u32) {
        let Some(largest) = self.gives_way_to(account) else {
            return;
        };
        // The last reference to a connection frees its slots, which takes the lock: all are dropped after it.
        let mut seen = Vec::new();
        let evicted = self.0.lock().evict(largest, |caller| {
            let Some(caller) = caller.upgrade() else {
                return true;
            };
            let idle = caller.is_idle();
            seen.push(caller);
            idle
        });
        if let Some(caller) = evicted.and_then(|caller| caller.upgrade()) {
            caller.evict();
        }
    }

    fn insert(&self, account: u32, caller: &Arc<Caller>) -> UserSlot {
        UserSlot {
            of: self.clone(),
            account,
            number: self.0.lock().insert(account, Arc::downgrade(caller)),
        }
    }
}

impl Drop for UserSlot {
    fn drop(&mut self) {
        self.of.0.lock().remove(self.account, self.number);
    }
}
