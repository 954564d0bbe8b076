//! Estimated waiting times for uses of keys, from the daemon.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_token::{Error, Estimate, Kind, Members, ObjectId, Result, Room};
use parking_lot::{Condvar, Mutex};

use crate::member::DaemonConnector;

/// How often the daemon is asked while keys are used.
const INTERVAL: Duration = Duration::from_millis(50);

/// An older estimate says nothing about the time.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Estimates of the keys that the service has used. A thread asks the daemon for them while they are used.
pub struct Estimates(Arc<Shared>);

struct Shared {
    connector: Arc<DaemonConnector>,
    known: ArcSwap<Known>,
    /// Whether an estimate was wanted since the daemon was last asked.
    is_wanted: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    keys: HashSet<ObjectId>,
    has_ended: bool,
}

struct Known {
    at: Instant,
    of_keys: HashMap<ObjectId, Estimate>,
    rooms: HashMap<Members, Room>,
}

impl Estimates {
    pub(crate) fn start(connector: Arc<DaemonConnector>) -> Result<Self> {
        let shared = Arc::new(Shared {
            connector,
            known: ArcSwap::from_pointee(Known::new(HashMap::new())),
            is_wanted: AtomicBool::new(false),
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let asking = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("hsmux-estimates".into());
        thread
            .spawn(move || asking.keep_asking())
            .map_err(|error| Error::pool(Kind::Environment, format!("no thread: {error}")))?;
        Ok(Self(shared))
    }

    /// The estimate for a key. It is a default if the key is used for the first time.
    pub fn of(&self, key: &ObjectId) -> Estimate {
        let shared = &self.0;
        let known = shared.known.load();
        let estimate = known.of_keys.get(key).copied();
        if estimate.is_none() {
            shared.state.lock().keys.insert(*key);
        }
        if !shared.is_wanted.load(Ordering::Relaxed)
            && !shared.is_wanted.swap(true, Ordering::AcqRel)
        {
            // The lock ensures that the thread has either seen the flag or waits already.
            let _state = shared.state.lock();
            shared.wake.notify_one();
        }
        match estimate {
            Some(estimate) if known.at.elapsed() < GOOD_FOR => estimate,
            Some(estimate) => Estimate {
                is_awaited: false,
                times: None,
                ..estimate
            },
            None => Estimate {
                members: Members::default(),
                room: shared.most(),
                is_awaited: false,
                times: None,
            },
        }
    }

    /// The number of uses that keep these members busy.
    pub fn room(&self, members: &Members) -> Room {
        let room = self.0.known.load().rooms.get(members).copied();
        room.unwrap_or_else(|| self.0.most())
    }
}

impl Drop for Estimates {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn keep_asking(&self) {
        let mut state = self.state.lock();
        while !state.has_ended {
            if !self.is_wanted.swap(false, Ordering::AcqRel) {
                self.wake.wait(&mut state);
                continue;
            }
            let keys: Vec<_> = state.keys.iter().copied().collect();
            drop(state);
            match self.connector.estimates(keys) {
                Ok(estimates) => self.known.store(Arc::new(Known::new(estimates))),
                Err(error) => tracing::debug!(%error, "no waiting times"),
            }
            state = self.state.lock();
            self.wake
                .wait_while_for(&mut state, |state| !state.has_ended, INTERVAL);
        }
    }

    /// The default, for unknown keys and members: all that the daemon takes at once.
    fn most(&self) -> Room {
        Room {
            uses: self.connector.lanes(),
            members: 1,
        }
    }
}

impl Known {
    fn new(of_keys: HashMap<ObjectId, Estimate>) -> Self {
        let estimates = of_keys.values();
        Self {
            at: Instant::now(),
            rooms: estimates.map(|of| (of.members, of.room)).collect(),
            of_keys,
        }
    }
}
