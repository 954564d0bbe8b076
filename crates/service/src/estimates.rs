//! Estimated waiting times for uses of keys, from the daemon.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use hsmux_token::{Error, Estimate, KeyCapacity, Kind, Members, ObjectId, Result};
use parking_lot::{Condvar, Mutex};

use crate::connector::DaemonConnector;
use crate::direct::DirectConnections;

/// How often the daemon is asked while keys are used.
const INTERVAL: Duration = Duration::from_millis(50);

/// An older estimate says nothing about the time.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Uses of a key within [`INTERVAL`] that make direct connections worth it.
const WORTH: u32 = 16;

/// Keys with direct connections, if the service does not name its keys beforehand. The one that came first goes first.
const MOST_COUNTED: usize = 32;

/// Keys whose uses are counted within [`INTERVAL`].
const COUNTED: usize = 256;

/// Estimates of the keys of a service. A thread asks the daemon for them while the keys are used.
pub struct Estimates(Arc<EstimateCache>);

struct EstimateCache {
    connector: Arc<DaemonConnector>,
    snapshot: ArcSwap<EstimateSnapshot>,
    /// Whether an estimate was wanted since the daemon was last asked.
    is_wanted: AtomicBool,
    state: Mutex<EstimateState>,
    /// Held from the choice of keys until their estimates are stored, or their direct connections are open.
    asking: Mutex<()>,
    wake: Condvar,
}

#[derive(Default)]
struct EstimateState {
    keys: Vec<ObjectId>,
    /// Uses since the daemon was last asked, of keys that are not estimated.
    uses: HashMap<ObjectId, u32>,
    has_ended: bool,
}

struct EstimateSnapshot {
    at: Instant,
    of_keys: HashMap<ObjectId, UsedKey>,
    capacities: HashMap<Members, KeyCapacity>,
}

struct UsedKey {
    estimate: Estimate,
    /// Uses since the estimate was made.
    uses: AtomicU32,
}

impl Estimates {
    pub(crate) fn start(connector: Arc<DaemonConnector>) -> Result<Self> {
        let cache = Arc::new(EstimateCache {
            connector,
            snapshot: ArcSwap::from_pointee(EstimateSnapshot::new(HashMap::new())),
            is_wanted: AtomicBool::new(false),
            state: Mutex::default(),
            asking: Mutex::default(),
            wake: Condvar::new(),
        });
        let asking = Arc::clone(&cache);
        let thread = std::thread::Builder::new().name("hsmux-estimates".into());
        thread
            .spawn(move || asking.keep_current())
            .map_err(|error| Error::pool(Kind::Environment, format!("no thread: {error}")))?;
        Ok(Self(cache))
    }

    /// Estimates uses of these keys from now on, and of no others, whose direct connections end. Blocks until there are
    /// estimates.
    pub fn learn(&self, keys: &[ObjectId]) {
        self.0.state.lock().keys = keys.to_vec();
        self.0.ask();
        // From here on no thread opens others.
        self.0.connector.keep_direct(keys);
    }

    /// The estimate for a key. It is a default if the daemon has not answered yet.
    pub fn of(&self, key: &ObjectId) -> Estimate {
        let cache = &self.0;
        let snapshot = cache.snapshot.load();
        let estimate = snapshot.of_keys.get(key).map(|used| {
            used.uses.fetch_add(1, Ordering::Relaxed);
            used.estimate
        });
        cache.want();
        match estimate {
            Some(estimate) if snapshot.at.elapsed() < GOOD_FOR => estimate,
            Some(estimate) => Estimate {
                is_awaited: false,
                times: None,
                ..estimate
            },
            None => Estimate {
                members: Members::default(),
                capacity: cache.most(),
                is_awaited: false,
                times: None,
            },
        }
    }

    /// Counts a use of a key that was not [named](Self::learn): keys that are used often get direct connections.
    pub fn count_use(&self, key: &ObjectId) {
        let cache = &self.0;
        if let Some(used) = cache.snapshot.load().of_keys.get(key) {
            used.uses.fetch_add(1, Ordering::Relaxed);
        } else {
            let mut state = cache.state.lock();
            if state.uses.len() < COUNTED || state.uses.contains_key(key) {
                *state.uses.entry(*key).or_default() += 1;
            }
        }
        cache.want();
    }

    /// The number of uses that keep these members busy.
    pub fn key_capacity(&self, members: &Members) -> KeyCapacity {
        let capacity = self.0.snapshot.load().capacities.get(members).copied();
        capacity.unwrap_or_else(|| self.0.most())
    }
}

impl Drop for Estimates {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.wake.notify_one();
    }
}

impl EstimateCache {
    fn keep_current(&self) {
        let mut direct = DirectConnections::new(&self.connector);
        let mut state = self.state.lock();
        while !state.has_ended {
            if !self.is_wanted.swap(false, Ordering::AcqRel) {
                self.wake.wait(&mut state);
                continue;
            }
            drop(state);
            self.connect_directly(&mut direct);
            self.ask();
            state = self.state.lock();
            self.wake
                .wait_while_for(&mut state, |state| !state.has_ended, INTERVAL);
        }
    }

    /// Wakes the thread, if it has not been woken since the daemon was last asked.
    fn want(&self) {
        if self.is_wanted.load(Ordering::Relaxed) || self.is_wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        // The lock ensures that the thread has either seen the flag or waits already.
        let _state = self.state.lock();
        self.wake.notify_one();
    }

    /// Asks for the estimates of all keys, with those that were used often.
    fn ask(&self) {
        let _turn = self.asking.lock();
        let mut state = self.state.lock();
        let uses = std::mem::take(&mut state.uses);
        let often = uses.into_iter().filter(|(_, uses)| *uses >= WORTH);
        let often: Vec<_> = often.map(|(key, _)| key).collect();
        let has_more = !often.is_empty();
        if has_more {
            state.keys.extend(often);
            let surplus = state.keys.len().saturating_sub(MOST_COUNTED);
            state.keys.drain(..surplus);
        }
        let keys = state.keys.clone();
        drop(state);
        if has_more {
            self.connector.keep_direct(&keys);
        }
        match self.connector.estimates(&keys) {
            Ok(estimates) => self
                .snapshot
                .store(Arc::new(EstimateSnapshot::new(estimates))),
            Err(error) => tracing::debug!(%error, "no waiting times"),
        }
    }

    /// Asks for direct connections for keys that are used often.
    fn connect_directly(&self, direct: &mut DirectConnections) {
        let _turn = self.asking.lock();
        let keys = self.state.lock().keys.clone();
        direct.retain(&keys);
        for (key, used) in &self.snapshot.load().of_keys {
            if used.uses.load(Ordering::Relaxed) >= WORTH && keys.contains(key) {
                direct.keep(*key, used.estimate.capacity.uses);
            }
        }
    }

    /// The default, for unknown keys and members: all that the daemon takes at once.
    fn most(&self) -> KeyCapacity {
        KeyCapacity {
            uses: self.connector.lanes(),
            members: 1,
        }
    }
}

impl UsedKey {
    fn new((key, estimate): (ObjectId, Estimate)) -> (ObjectId, Self) {
        let uses = AtomicU32::new(0);
        (key, Self { estimate, uses })
    }
}

impl EstimateSnapshot {
    fn new(of_keys: HashMap<ObjectId, Estimate>) -> Self {
        let estimates = of_keys.values();
        Self {
            at: Instant::now(),
            capacities: estimates.map(|of| (of.members, of.capacity)).collect(),
            of_keys: of_keys.into_iter().map(UsedKey::new).collect(),
        }
    }
}
