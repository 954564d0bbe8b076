//! Looking after members while they serve: keys that others add or remove are found, and workers that have
//! become slow or blind are replaced by fresh ones.
//!
//! A member that wants it ([`crate::Care`]) has a thread for that, which sleeps most of the time. What it
//! does it does beside the connections that serve: it looks at the token through a process of its own.

mod baseline;
mod compare;
mod replace;
mod scout;
mod spare;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hsmux_token::ObjectId;
use hsmux_token::sync::{Condvar, Mutex};

use crate::core::Core;
use crate::panics::one_round;
use crate::record::{Connection, Record, State};
use baseline::Baselines;
use replace::Reason;
use scout::Scout;
use spare::Allowance;

/// Between two looks at a member that does not serve, or that nobody is to look at.
const IDLE: Duration = Duration::from_secs(1);

/// Before the next look, where a connection was replaced.
const SOON: Duration = Duration::from_millis(50);

/// All minders of a pool, by member.
#[derive(Default)]
pub(crate) struct Minders(Mutex<HashMap<Arc<str>, Arc<Minder>>>);

/// Who looks after one member.
struct Minder {
    member: Arc<str>,
    missed: Mutex<Missed>,
    woken: Condvar,
}

/// What is to be looked at at once.
#[derive(Default)]
struct Missed {
    now: bool,
    /// Keys that a connection, by its generation, has said that it does not hold.
    keys: Vec<(u64, ObjectId)>,
}

/// More than this is not remembered: it is one and the same trouble.
const MISSED: usize = 64;

impl Core {
    /// Has this seat's member looked after from now on, if it wants that.
    pub fn mind(self: &Arc<Self>, record: &Record) {
        let care = record.seat.connector.care();
        if !self.options.threads || !(care.look || care.replace) {
            return;
        }
        let mut minders = self.minders.0.lock();
        if minders.contains_key(&record.member) {
            return;
        }
        let minder = Arc::new(Minder {
            member: Arc::clone(&record.member),
            missed: Mutex::default(),
            woken: Condvar::new(),
        });
        let pool = Arc::downgrade(self);
        let minding = Arc::clone(&minder);
        let thread = std::thread::Builder::new().name(format!("hsmux-minds-{}", record.member));
        match thread.spawn(move || minding.run(&pool)) {
            Ok(_) => {
                minders.insert(Arc::clone(&record.member), minder);
            }
            Err(error) => {
                tracing::error!(member = %record.member, "no thread to look after it: {error}");
            }
        }
    }

    /// A connection does not hold a key that it was thought to hold: it is gone, or the connection's
    /// module has not seen it.
    pub fn missed(&self, connection: &Connection, key: ObjectId) {
        let minder = self
            .minders
            .0
            .lock()
            .get(&connection.record.member)
            .cloned();
        if let Some(minder) = minder {
            minder.wake(Some((connection.generation, key)));
        }
    }

    /// Nobody is looked after any longer.
    pub fn stop_minding(&self) {
        let minders = std::mem::take(&mut *self.minders.0.lock());
        for minder in minders.into_values() {
            minder.wake(None);
        }
    }
}

impl Minder {
    fn run(&self, core: &Weak<Core>) {
        let mut round = Round::default();
        loop {
            let Some(core) = core.upgrade() else { return };
            if core.stopping.load(Ordering::Acquire) {
                return;
            }
            let records = self.records(&core);
            if records.is_empty() {
                // Whoever adds a seat of the member now waits for the lock, and has it minded again.
                let mut minders = core.minders.0.lock();
                if self.records(&core).is_empty() {
                    minders.remove(&self.member);
                    return;
                }
            }
            let missed = std::mem::take(&mut *self.missed.lock());
            let rest = one_round("the minder", || round.go(&core, &records, missed.keys));
            drop((records, core));
            match rest {
                Some(rest) => self.rest(rest),
                // What it knew may be half of it.
                None => round = Round::default(),
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
        self.woken.notify_one();
    }

    fn rest(&self, rest: Duration) {
        let until = Instant::now() + rest;
        let mut missed = self.missed.lock();
        while !missed.now && !self.woken.wait_until(&mut missed, until) {}
    }
}

/// What a minder knows from one round to the next.
#[derive(Default)]
struct Round {
    scout: Scout,
    baselines: Baselines,
    allowance: Allowance,
    /// Keys that a connection, by its generation, does not find.
    missed: Vec<(u64, ObjectId)>,
}

impl Round {
    /// Looks at everything once; answers how long to rest.
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
            self.scout.dismiss();
            return IDLE;
        };
        let wanted = first.record.seat.connector.care();
        if first.info.slot.is_some() && !wanted.cards {
            return IDLE;
        }
        let mut rest = IDLE;
        if wanted.look && self.allowance.is_free() && outgrown(first) {
            self.replace(core, first, &Reason::Outgrown);
            // The old one ends when nobody looks through it.
            self.scout.dismiss();
            return SOON;
        }
        if wanted.look {
            let looked = self.scout.look(core, &serving);
            rest = looked.rest;
            if looked.changed {
                self.allowance.keys_have_changed();
            }
        }
        if wanted.replace {
            self.missed.extend(missed);
            let trouble = self.trouble(core, &serving);
            if let Some((connection, reason)) = trouble.filter(|_| self.allowance.is_free()) {
                self.replace(core, connection, &reason);
                // Another one may be in the same trouble.
                rest = rest.min(SOON);
            }
        }
        rest
    }

    /// The first that is not as it should be.
    fn trouble<'a>(
        &mut self,
        core: &Core,
        serving: &'a [Arc<Connection>],
    ) -> Option<(&'a Arc<Connection>, Reason)> {
        let by = |generation| serving.iter().find(|c| c.generation == generation);
        self.missed
            .retain(|(generation, key)| by(*generation).is_some() && self.scout.holds(key));
        // A connection with session objects is not replaced, and the others do not wait for it.
        let mut missed = self.missed.iter();
        let blind = missed.find(|(generation, _)| !core.may_hold_session_objects(*generation));
        if let Some((generation, key)) = blind {
            return Some((by(*generation)?, Reason::Blind(*key)));
        }
        let generations: Vec<_> = serving.iter().map(|c| c.generation).collect();
        self.baselines.keep(&generations);
        let may_go =
            |connection: &&Arc<Connection>| !core.may_hold_session_objects(connection.generation);
        serving.iter().filter(may_go).find_map(|connection| {
            let paces = connection.token.pace();
            let slow = self.baselines.judge(connection.generation, &paces)?;
            Some((connection, Reason::Slow(slow)))
        })
    }

    fn replace(&mut self, core: &Arc<Core>, old: &Arc<Connection>, reason: &Reason) {
        let seat = &old.record.name;
        match core.replace(old, reason) {
            Ok(true) => {
                self.allowance.spent_well();
                tracing::warn!(%seat, "{reason}: a fresh worker serves in its place");
            }
            Ok(false) => {
                self.allowance.spent_in_vain();
                match reason {
                    Reason::Slow(slow) => self.baselines.accept(slow),
                    Reason::Blind(key) => self.missed.retain(|(_, missed)| missed != key),
                    Reason::Outgrown => {}
                }
                tracing::info!(%seat, "{reason}, and a fresh worker is no better: it stays");
            }
            Err(error) => {
                self.allowance.spent_in_vain();
                tracing::warn!(%seat, "{reason}, and was not replaced: {error}");
            }
        }
    }
}

/// Whether the token can do other things than when it was connected. That it cannot be asked is told elsewhere.
fn outgrown(connection: &Connection) -> bool {
    connection.record.seat.connector.outgrown().unwrap_or(false)
}

/// The connection by which a seat serves.
fn serving(record: &Record) -> Option<Arc<Connection>> {
    let life = record.life.lock();
    let connection = life.connection.clone();
    connection.filter(|_| matches!(life.state, State::InService))
}
