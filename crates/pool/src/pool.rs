//! The pool: many tokens as one, and their administration.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use hsmux_token::sync::Turn;
use hsmux_token::{
    Batch, Error, Kind, ObjectId, Operation, Outcome, Result, Snapshot, Token, TokenInfo,
};

use crate::catalogue::Catalogue;
use crate::clock::{self, Mutex};
use crate::core::Core;
use crate::record::{LifeState, Record, SeatConnection};
use crate::seatset::SeatSet;
use crate::{Changes, Options, PoolStatus, Seat, Traffic};

mod queue;
mod renew;
mod submit;
#[cfg(test)]
mod tests;

use queue::ChangeQueue;

/// Many tokens as one.
///
/// Serves as soon as one seat is in service; seats come and go while it runs. Dropping it stops it.
pub struct Pool {
    pub(crate) core: Arc<Core>,
    me: Weak<Self>,
    changes: OnceLock<Arc<dyn Changes>>,
    /// Held by the one writer, and by whoever adds or removes seats.
    writer: Turn<()>,
    waiting: Mutex<ChangeQueue>,
    roster: Mutex<()>,
    /// Names of parked members or seats, each with its reason.
    parked: Mutex<BTreeMap<String, String>>,
}

/// [`Pool::start`] returns after this, though some seats are still connecting.
const START_GRACE: Duration = Duration::from_secs(3);

impl Pool {
    /// Connects all seats at once, each on its own thread, and returns when each has been tried
    /// once, or after three seconds: a member that hangs does not hold up the others. Requests for
    /// keys of seats that are still connecting wait. Without threads, connects one after the other.
    ///
    /// No seat in service is no error: they are tried again for as long as the pool lives.
    pub fn start(options: Options, seats: Vec<Seat>) -> Result<Arc<Self>> {
        let (queue, parked) = (options.queue, options.parked.clone());
        let core = Core::new(options);
        let pool = Arc::new_cyclic(|me| Self {
            core,
            me: me.clone(),
            changes: OnceLock::new(),
            writer: Turn::new(()),
            waiting: Mutex::new(ChangeQueue::new(queue)),
            roster: Mutex::new(()),
            parked: Mutex::new(parked),
        });
        if pool.core.options.threads {
            let core = Arc::clone(&pool.core);
            clock::spawn("hsmux-keeper".into(), move || core.keep()).map_err(|error| {
                let message = format!("no thread for the pool: {error}");
                Error::pool(Kind::Environment, message)
            })?;
        }
        let records = pool.seat_all(seats)?;
        // Of members that have gone: a new one that gets the name is not parked.
        let is_seated = |name: &str| records.iter().any(|record| record.is_named(name));
        pool.parked.lock().retain(|name, _| is_seated(name));
        for record in records {
            pool.begin_unless_parked(&record);
        }
        pool.wait_until(clock::now() + START_GRACE, |pool| {
            pool.core.busy.load(Ordering::Acquire) == 0
        });
        Ok(pool)
    }

    /// Who carries out changes of token objects; the first call counts.
    pub fn set_changes(&self, changes: Arc<dyn Changes>) {
        let _ = self.changes.set(changes);
    }

    /// What the pool was told at its start.
    pub fn options(&self) -> &Options {
        &self.core.options
    }

    /// What the pool holds.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.core.catalogue.load_full()
    }

    /// How everything is.
    pub fn status(&self) -> PoolStatus {
        PoolStatus {
            changes: self.changes_waiting(),
            debts: self
                .changes
                .get()
                .map_or_else(Vec::new, |changes| changes.debts()),
            ..crate::status::of(&self.core)
        }
    }

    /// The last error of a seat's connection.
    pub fn last_error(&self, seat: &str) -> Option<Error> {
        let records = self.named(seat).ok()?;
        let last = records.first()?.last_error.lock();
        last.as_ref().map(|(_, error)| error.clone())
    }

    /// What the seats do, without a look at the objects.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            changes: self.changes_waiting(),
            ..crate::traffic::of(&self.core)
        }
    }

    /// A new seat; it connects in the background, unless its member is parked.
    pub fn add(&self, seat: Seat) -> Result<()> {
        self.add_all(vec![seat])
    }

    /// The same for several seats: all of them, or none.
    pub fn add_all(&self, seats: Vec<Seat>) -> Result<()> {
        let admit = |seat| match self.changes.get() {
            Some(changes) => changes.admit(seat),
            None => seat,
        };
        for record in self.seat_all(seats.into_iter().map(admit).collect())? {
            self.begin_unless_parked(&record);
        }
        Ok(())
    }

    /// Removes a seat, or all seats of a member, after what runs there has ended or timed out.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.retire(name, &LifeState::Removed, "removed by the administrator")
    }

    /// Takes a seat, or all seats of a member, out of service until [`Self::resume`].
    pub fn park(&self, name: &str, reason: &str) -> Result<()> {
        self.named(name)?;
        // First, so that one that is added again meanwhile is parked, too.
        self.parked.lock().insert(name.into(), reason.into());
        self.retire(name, &LifeState::Parked(reason.into()), reason)
    }

    /// Names that were given to [`Self::park`] and not yet to [`Self::resume`], each with its reason.
    pub fn parked(&self) -> BTreeMap<String, String> {
        self.parked.lock().clone()
    }

    /// Forgets that this name was parked: a member that is added under it connects.
    pub fn forget_parked(&self, name: &str) {
        self.parked.lock().remove(name);
    }

    /// Connects what is parked or rests after a failure, at once.
    pub fn resume(&self, name: &str) -> Result<()> {
        let records = self.named(name)?;
        let meant = |parked: &str| records.iter().any(|record| record.is_named(parked));
        self.parked.lock().retain(|parked, _| !meant(parked));
        let rests =
            |state: &LifeState| matches!(state, LifeState::Parked(_) | LifeState::BackOff(_));
        for record in records {
            self.core.begin(&record, rests);
        }
        Ok(())
    }

    /// A connection to one member (or seat), for an administrative operation that concerns it alone.
    ///
    /// It does not pass through the queue, and its session objects are the worker's own (owner 0).
    pub fn member(&self, name: &str) -> Result<Arc<dyn Token>> {
        let connection = self.connections(name)?.into_iter().next();
        let connection = connection.ok_or_else(|| not_in_service(name))?;
        Ok(Arc::clone(&connection.token))
    }

    /// Reads the objects of a member (or seat) again: new keys are proved, what is gone leaves.
    pub fn refresh(&self, name: &str) -> Result<()> {
        self.reread(name, false)
    }

    /// The same, and every key of it proves itself anew. Meanwhile its other replicas serve.
    pub fn prove(&self, name: &str) -> Result<()> {
        self.reread(name, true)
    }

    /// Proves those of these keys of a member (or seat) whose uses are counted; each costs one on
    /// each of its seats.
    pub fn prove_counted(&self, name: &str, keys: &[ObjectId]) -> Result<()> {
        for connection in self.connections(name)? {
            self.core.prove_counted(&connection, keys);
        }
        Ok(())
    }

    fn reread(&self, name: &str, anew: bool) -> Result<()> {
        let connections = self.connections(name)?;
        if connections.is_empty() {
            return Err(not_in_service(name));
        }
        for connection in connections {
            self.core.reread(&connection, anew)?;
        }
        Ok(())
    }

    /// Ends all connections; what waits or runs is answered with an error.
    pub fn stop(&self) {
        self.core.stopping.store(true, Ordering::Release);
        for record in self.core.records() {
            self.core
                .retire_now(&record, LifeState::Removed, "the pool has stopped");
        }
        self.core.alarm.now();
        self.core.moved();
        self.core.stop_watching();
    }

    /// Gives new seats their place.
    fn seat_all(&self, seats: Vec<Seat>) -> Result<Vec<Arc<Record>>> {
        let _roster = self.roster.lock();
        let mut table = Vec::clone(&self.core.seats.load());
        let mut added = Vec::new();
        for seat in seats {
            let has_its_name = |record: &&Arc<Record>| *record.name == seat.name;
            if let Some(record) = table.iter().flatten().find(has_its_name) {
                return Err(member_already(record));
            }
            let free = table.iter().position(Option::is_none);
            let index = free.unwrap_or(table.len());
            if index >= SeatSet::LIMIT {
                let message = format!("a pool has at most {} seats", SeatSet::LIMIT);
                return Err(Error::pool(Kind::Invalid, message));
            }
            let record = Record::new(index, seat);
            match free {
                Some(index) => table[index] = Some(Arc::clone(&record)),
                None => table.push(Some(Arc::clone(&record))),
            }
            added.push(record);
        }
        self.core.seats.store(Arc::new(table));
        self.core.publish(|registry| {
            for record in &added {
                registry.expected.insert(record.index);
                registry.unsettled.insert(record.index);
                let remote = record.seat.connector.remote();
                registry.remote.set(record.index, remote);
            }
        });
        Ok(added)
    }

    fn begin_unless_parked(&self, record: &Arc<Record>) {
        let parked = self.parked();
        let mut reasons = parked.iter().filter(|(name, _)| record.is_named(name));
        match reasons.next() {
            Some((_, reason)) => {
                let state = LifeState::Parked(reason.as_str().into());
                self.core.retire_now(record, state, reason);
            }
            None => self.core.begin(record, |_| true),
        }
    }

    fn retire(&self, name: &str, state: &LifeState, reason: &str) -> Result<()> {
        let mut records = self.named(name)?;
        for record in &records {
            self.core.drain(record);
        }
        self.until_idle(&records);
        let retired = |record: &Arc<Record>| self.core.retire_now(record, state.clone(), reason);
        records.retain(retired);
        if matches!(state, LifeState::Removed) {
            let _roster = self.roster.lock();
            let mut table = Vec::clone(&self.core.seats.load());
            for record in &records {
                table[record.index] = None;
            }
            self.core.seats.store(Arc::new(table));
        }
        Ok(())
    }

    /// Waits until nothing runs on these seats. The keeper ends what hangs; without one that is left to itself.
    fn until_idle(&self, records: &[Arc<Record>]) {
        let patience = records.iter().map(|record| record.seat.timeout).max();
        let deadline = clock::now() + patience.unwrap_or_default();
        let running = |record: &Arc<Record>| {
            // Another seat may have the place of one that somebody else has removed.
            let removed = matches!(record.life.lock().state, LifeState::Removed);
            let activity = self.core.scheduler.lock().activity(record.index);
            !removed && activity.is_some_and(|activity| activity.running > 0)
        };
        while records.iter().any(running) && (self.core.options.threads || clock::now() < deadline)
        {
            clock::sleep(Duration::from_millis(2));
        }
    }

    /// The seats of a member, or the one seat of this name.
    fn named(&self, name: &str) -> Result<Vec<Arc<Record>>> {
        let mut records = self.core.records();
        records.retain(|record| record.is_named(name));
        if records.is_empty() {
            let message = format!("the pool has no member {name}; hsmux token list shows all");
            return Err(Error::pool(Kind::Invalid, message));
        }
        Ok(records)
    }

    fn connections(&self, name: &str) -> Result<Vec<Arc<SeatConnection>>> {
        let records = self.named(name)?;
        let connections = records
            .iter()
            .filter_map(|record| record.life.lock().connection.clone());
        Ok(connections.collect())
    }

    /// Waits for seats to move.
    fn wait_until(&self, deadline: Instant, reached: impl Fn(&Self) -> bool) {
        let mut moved = self.core.moved.lock();
        let mut is_late = false;
        while !is_late && !reached(self) {
            (moved, is_late) = self.core.moved.wait_until(moved, deadline);
        }
    }
}

impl Token for Pool {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.core.catalogue.load().info)
    }

    /// From the catalogue: no token is asked.
    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::clone(self.core.catalogue.load().snapshot()))
    }

    fn submit(&self, batch: Batch) {
        let batch = batch.into_iter().map(|request| (request, None));
        self.submit_at(batch, None, None);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.execute_at(operation, deadline, None)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

fn member_already(record: &Record) -> Error {
    let member = &record.member;
    let next = match record.life.lock().state {
        LifeState::Parked(_) => format!("it is parked: hsmux token resume {member}"),
        _ => "hsmux token list shows all".to_owned(),
    };
    Error::pool(
        Kind::Invalid,
        format!("{member} is a member already; {next}"),
    )
}

fn not_in_service(name: &str) -> Error {
    Error::pool(
        Kind::NoReplica,
        format!("{name} is not in service; hsmux status says why"),
    )
}
