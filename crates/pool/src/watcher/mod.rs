//! Watches members while they serve. Finds keys that others add or remove, and replaces workers that have become
//! slow or blind.
//!
//! A member that wants it ([`crate::Care`]) has a thread for this, which sleeps most of the time. The thread looks
//! at the token through a process of its own, beside the connections that serve.

mod baseline;
mod probe;
mod replace;
mod replacement_budget;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hsmux_token::ObjectId;

use crate::clock::{self, Monitor, Mutex};
use crate::core::Core;
use crate::panics::one_round;
use crate::record::{LifeState, Record, SeatConnection};
use baseline::{Baselines, PaceVerdict, Slow};
use probe::Probe;
use replace::Reason;
use replacement_budget::ReplacementBudget;

/// The pause between two rounds of a member that does not serve, or that is not looked at.
const IDLE: Duration = Duration::from_secs(1);

/// The pause after a connection was replaced.
const SOON: Duration = Duration::from_millis(50);

/// All watchers of a pool, by member.
#[derive(Default)]
pub(crate) struct MemberWatchers(Mutex<HashMap<Arc<str>, Arc<MemberWatcher>>>);

/// Watches one member.
struct MemberWatcher {
    member: Arc<str>,
    missed: Monitor<MissedKeys>,
}

/// What wakes the watcher.
#[derive(Default)]
struct MissedKeys {
    now: bool,
    /// Keys that a connection does not find, with the connection's generation.
    keys: Vec<(u64, ObjectId)>,
}

/// The most missed keys that are remembered: more of them have the same cause.
const MISSED: usize = 64;

impl Core {
    /// Watches this seat's member from now on, if it wants that.
    pub fn watch_member(self: &Arc<Self>, record: &Record) {
        let care = record.seat.connector.care();
        if !self.options.threads || !(care.look || care.replace) {
            return;
        }
        let mut watchers = self.watchers.0.lock();
        if watchers.contains_key(&record.member) {
            return;
        }
        let watcher = Arc::new(MemberWatcher {
            member: Arc::clone(&record.member),
            missed: Monitor::default(),
        });
        let pool = Arc::downgrade(self);
        let watching = Arc::clone(&watcher);
        let name = format!("hsmux-watch-{}", record.member);
        match clock::spawn(name, move || watching.run(&pool)) {
            Ok(()) => {
                watchers.insert(Arc::clone(&record.member), watcher);
            }
            Err(error) => {
                tracing::error!(member = %record.member, "no thread to watch it: {error}");
            }
        }
    }

    /// A connection does not hold a key that the catalogue has there. The key is gone, or the connection's module has
    /// not seen it.
    pub fn missed(&self, connection: &SeatConnection, key: ObjectId) {
        let watcher = self
            .watchers
            .0
            .lock()
            .get(&connection.record.member)
            .cloned();
        if let Some(watcher) = watcher {
            watcher.wake(Some((connection.generation, key)));
        }
    }

    /// Ends all watchers.
    pub fn stop_watching(&self) {
        let watchers = std::mem::take(&mut *self.watchers.0.lock());
        for watcher in watchers.into_values() {
            watcher.wake(None);
        }
    }
}

impl MemberWatcher {
    fn run(&self, core: &Weak<Core>) {
        let mut state = WatchState::default();
        loop {
            let Some(core) = core.upgrade() else { return };
            if core.stopping.load(Ordering::Acquire) {
                return;
            }
            let records = self.records(&core);
            if records.is_empty() {
                // A thread that adds a seat of the member now waits for the lock, and starts a new watcher.
                let mut watchers = core.watchers.0.lock();
                if self.records(&core).is_empty() {
                    watchers.remove(&self.member);
                    return;
                }
            }
            let missed = std::mem::take(&mut *self.missed.lock());
            let rest = one_round("the watcher", || state.go(&core, &records, missed.keys));
            drop((records, core));
            match rest {
                Some(rest) => self.rest(rest),
                // The panic may have left the state incomplete.
                None => state = WatchState::default(),
            }
        }
    }

    fn records(&self, core: &Core) -> Vec<Arc<Record>> {
        let mut records = core.records();
        records.retain(|record| record.member == self.member);
        records
    }

    fn wake(&self, key: Option<(u64, ObjectId)>) {
        let mut missed = self.missed.lock();
        missed.now = true;
        if missed.keys.len() < MISSED {
            missed.keys.extend(key);
        }
        drop(missed);
        self.missed.notify_one();
    }

    fn rest(&self, rest: Duration) {
        let until = clock::now() + rest;
        let mut missed = self.missed.lock();
        let mut is_late = false;
        while !missed.now && !is_late {
            (missed, is_late) = self.missed.wait_until(missed, until);
        }
    }
}

/// What a watcher keeps from one round to the next.
#[derive(Default)]
struct WatchState {
    probe: Probe,
    baselines: Baselines,
    budget: ReplacementBudget,
    /// Of slow connections. It does not delay the replacement of others.
    slow_budget: ReplacementBudget,
    /// Keys that a connection does not find, with the connection's generation.
    missed: Vec<(u64, ObjectId)>,
}

impl WatchState {
    /// One round. Answers how long to rest.
    fn go(
        &mut self,
        core: &Arc<Core>,
        records: &[Arc<Record>],
        missed: Vec<(u64, ObjectId)>,
    ) -> Duration {
        let serving: Vec<_> = records
            .iter()
            .filter_map(|record| serving(record))
            .collect();
        let Some(first) = serving.first() else {
            // The token may be needed elsewhere, or be gone.
            self.probe.dismiss();
            return IDLE;
        };
        let wanted = first.record.seat.connector.care();
        if first.info.slot.is_some() && !wanted.cards {
            return IDLE;
        }
        let generations: Vec<_> = serving.iter().map(|c| c.generation).collect();
        self.baselines.serve_by(&generations);
        let mut rest = IDLE;
        if wanted.look && self.budget.is_free() && outgrown(first) {
            self.replace(core, first, &Reason::Outgrown);
            // The old worker ends when the probe no longer uses it.
            self.probe.dismiss();
            return SOON;
        }
        if wanted.look {
            let looked = self.probe.look(core, &serving);
            rest = looked.rest;
            if looked.changed {
                self.budget.keys_have_changed();
                self.slow_budget.keys_have_changed();
                self.baselines.objects_have_changed();
            }
        }
        if wanted.replace {
            self.missed.extend(missed);
            if let Some((connection, reason)) = self.trouble(core, &serving) {
                self.replace(core, connection, &reason);
                // Another connection may have the same trouble.
                rest = rest.min(SOON);
            }
        }
        rest
    }

    /// The first connection that is blind or slow, and may be replaced now. One with session objects is not replaced,
    /// and the others do not wait for it.
    fn trouble<'a>(
        &mut self,
        core: &Core,
        serving: &'a [Arc<SeatConnection>],
    ) -> Option<(&'a Arc<SeatConnection>, Reason)> {
        let slow = serving.iter().map(|connection| self.judge(connection));
        let slow: Vec<_> = slow.collect();
        let may_go =
            |connection: &SeatConnection| !core.may_hold_session_objects(connection.generation);
        let by = |generation| serving.iter().find(|c| c.generation == generation);
        self.missed
            .retain(|(generation, key)| by(*generation).is_some() && self.probe.holds(key));
        let mut missed = self.missed.iter();
        let blind = missed.find_map(|(generation, key)| {
            let connection = by(*generation).filter(|connection| may_go(connection))?;
            Some((connection, Reason::Blind(*key)))
        });
        if blind.is_some() && self.budget.is_free() {
            return blind;
        }
        let mut slow = serving.iter().zip(slow);
        let slow = slow.find_map(|(connection, slow)| {
            let slow = slow.filter(|_| may_go(connection))?;
            Some((connection, Reason::Slow(slow)))
        });
        slow.filter(|_| self.slow_budget.is_free())
    }

    /// The slowest work of a connection. Notices as well whether it was worth it to replace its predecessor.
    fn judge(&mut self, connection: &SeatConnection) -> Option<Slow> {
        let paces = connection.token.pace();
        match self.baselines.judge(connection.generation, &paces)? {
            PaceVerdict::Slow(slow) => return Some(slow),
            PaceVerdict::Faster => self.slow_budget.replaced_well(),
            PaceVerdict::NoFaster => {
                self.slow_budget.replaced_in_vain();
                let seat = &connection.record.name;
                tracing::info!(%seat, "it is as slow as the worker that it replaced");
            }
        }
        None
    }

    fn replace(&mut self, core: &Arc<Core>, old: &Arc<SeatConnection>, reason: &Reason) {
        let seat = &old.record.name;
        let budget = match reason {
            Reason::Slow(_) => &mut self.slow_budget,
            Reason::Blind(_) | Reason::Outgrown => &mut self.budget,
        };
        match core.replace(old, reason) {
            Ok(Some(successor)) => {
                budget.replaced();
                match reason {
                    // Its pace will tell.
                    Reason::Slow(slow) => self.baselines.replaced(successor, slow),
                    Reason::Blind(_) | Reason::Outgrown => budget.replaced_well(),
                }
                tracing::warn!(%seat, "{reason}: a fresh worker serves in its place");
            }
            Ok(None) => {
                budget.replaced_in_vain();
                if let Reason::Blind(key) = reason {
                    self.missed.retain(|(_, missed)| missed != key);
                    // The probe is the only one that still sees the key.
                    self.probe.dismiss();
                }
                tracing::info!(%seat, "{reason}, and a fresh worker is no better: it stays");
            }
            Err(error) => {
                budget.replaced_in_vain();
                tracing::warn!(%seat, "{reason}, and was not replaced: {error}");
            }
        }
    }
}

/// True if the token can do other things than when it was connected. A failure to ask is reported elsewhere.
fn outgrown(connection: &SeatConnection) -> bool {
    connection.record.seat.connector.outgrown().unwrap_or(false)
}

/// The connection by which a seat serves.
fn serving(record: &Record) -> Option<Arc<SeatConnection>> {
    let life = record.life.lock();
    let connection = life.connection.clone();
    connection.filter(|_| matches!(life.state, LifeState::InService))
}
