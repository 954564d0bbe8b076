//! Replaces a connection while it serves. The fresh connection logs in and proves its keys, then it takes over. The old
//! connection finishes what it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Kind, ObjectId, Result, Snapshot, TokenInfo};

use super::baseline::Slow;
use crate::catalogue::ReplicaState;
use crate::clock;
use crate::core::Core;
use crate::object_sync::Reading;
use crate::record::{Retry, SeatConnection};

/// Why a connection is to be replaced.
pub(super) enum Reason {
    /// It has become slow.
    Slow(Slow),
    /// It does not find a key that the token holds.
    Blind(ObjectId),
    /// The token can do other things than when it was connected.
    Outgrown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow(slow) => write!(f, "it is slow ({slow})"),
            Self::Blind(key) => write!(
                f,
                "its module does not see {key:?}, which others have added"
            ),
            Self::Outgrown => f.write_str("it can do other things than when it was connected"),
        }
    }
}

impl Core {
    /// Replaces a connection, and returns the generation of the fresh one. `None` if that is no better.
    pub(super) fn replace(
        self: &Arc<Self>,
        old: &Arc<SeatConnection>,
        reason: &Reason,
    ) -> Result<Option<u64>> {
        let record = &old.record;
        self.has_no_session_objects(old)?;
        if !record.life.lock().serves_by(old) {
            return Err(Error::lost("the worker has ended meanwhile"));
        }
        let reading = self.reading(record);
        let token = record.seat.connector.connect()?;
        let generation = self.generation(record.index);
        let fresh = Arc::new(SeatConnection::new(Arc::clone(record), generation, token));
        let good = self.is_worth_it(&fresh, old, reason);
        let replaced = good.and_then(|snapshot| match snapshot {
            Some(snapshot) => self
                .take_over(&fresh, old, &snapshot, reading)
                .map(|()| Some(generation)),
            None => Ok(None),
        });
        if !matches!(replaced, Ok(Some(_))) {
            fresh.token.abort("it is not needed");
        }
        replaced
    }

    fn has_no_session_objects(&self, old: &SeatConnection) -> Result<()> {
        if self.may_hold_session_objects(old.generation) {
            let message = "session objects of an application may live there";
            return Err(Error::token(Kind::Unsupported, message));
        }
        Ok(())
    }

    /// The objects of the fresh connection, if it is better than the old one.
    fn is_worth_it(
        self: &Arc<Self>,
        fresh: &Arc<SeatConnection>,
        old: &Arc<SeatConnection>,
        reason: &Reason,
    ) -> Result<Option<Arc<Snapshot>>> {
        let names =
            |info: &TokenInfo| (info.serial.clone(), info.label.clone(), info.model.clone());
        if names(&fresh.info) != names(&old.info) {
            let message = "a fresh worker finds another token";
            return Err(Error::token(Kind::Environment, message));
        }
        let snapshot = fresh.token.objects()?;
        let better = match reason {
            Reason::Blind(key) => snapshot.objects.iter().any(|object| object.id == *key),
            Reason::Slow(slow) => self.prove_work(fresh, old, slow).map(|()| true)?,
            Reason::Outgrown => fresh.info != old.info,
        };
        Ok(better.then_some(snapshot))
    }

    /// Proves on the fresh connection the key of the slow work, unless the key has left meanwhile.
    fn prove_work(
        self: &Arc<Self>,
        fresh: &Arc<SeatConnection>,
        old: &Arc<SeatConnection>,
        slow: &Slow,
    ) -> Result<()> {
        let catalogue = self.catalogue.load_full();
        let index = old.record.index;
        let replica = catalogue
            .entries
            .get(&slow.key)
            .and_then(|entry| entry.replica(index));
        let serves = replica.filter(|replica| replica.state == ReplicaState::Serving);
        match serves.map(|replica| Arc::clone(&replica.object)) {
            Some(object) => self.prove_fresh(fresh, old, &object),
            None => Ok(()),
        }
    }

    /// The fresh connection serves from here on.
    fn take_over(
        self: &Arc<Self>,
        fresh: &Arc<SeatConnection>,
        old: &Arc<SeatConnection>,
        snapshot: &Snapshot,
        reading: Reading<'_>,
    ) -> Result<()> {
        let record = &old.record;
        let mut life = record.life.lock();
        if !life.serves_by(old) {
            return Err(Error::lost("the worker has ended meanwhile"));
        }
        // A client may have made a session object meanwhile.
        self.has_no_session_objects(old)?;
        // Proved keys go on serving: it is the same token, and the fresh worker holds the key.
        let (unproved, update) =
            self.edit(|registry| reading.install(registry, &fresh.holder(), snapshot, false));
        life.connection = Some(Arc::clone(fresh));
        life.last_seen = Some(Arc::clone(&fresh.info));
        *record.retry.lock() = Retry::default();
        let mut scheduler = self.scheduler.lock();
        scheduler.supersede(
            record.index,
            fresh.generation,
            Arc::clone(fresh),
            self.capacity(fresh),
        );
        let grants = scheduler.fill(clock::now());
        drop(scheduler);
        drop(life);
        record
            .replaced
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.carry_out(update);
        self.hand_out(grants);
        self.watch(fresh);
        self.moved();
        if !unproved.is_empty() {
            self.in_background(fresh, move |core, connection| {
                core.prove(connection, &unproved);
            });
        }
        self.wait_until_drained(old);
        Ok(())
    }

    /// Waits until nothing runs on a replaced connection. Its process ends with the last reference to it.
    fn wait_until_drained(&self, old: &SeatConnection) {
        let until = clock::now() + old.record.seat.timeout;
        while self.scheduler.lock().is_leaving(old.generation) && clock::now() < until {
            clock::sleep(Duration::from_millis(1));
        }
    }
}
