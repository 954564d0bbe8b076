//! Brings seats into service: connects them, reads their objects, and proves their keys one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hsmux_token::{Error, Kind, ObjectId, Snapshot};

use crate::clock;
use crate::core::Core;
use crate::object_sync::Reading;
use crate::panics::or_panicked;
use crate::record::{LifeState, Record, Retry, SeatConnection};
use crate::scheduler::Capacity;

impl Core {
    /// Connects a seat that is in [`LifeState::Connecting`], on a thread of its own if there may be one.
    pub fn connect(self: &Arc<Self>, record: &Arc<Record>, turn: u64) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        if !self.options.threads {
            return self.connect_here(record, turn);
        }
        let core = Arc::clone(self);
        let connecting = Arc::clone(record);
        let name = format!("hsmux-{}", record.name);
        let started = clock::spawn(name, move || core.connect_here(&connecting, turn));
        if let Err(error) = started {
            let message = format!("no thread to connect {}: {error}", record.name);
            self.connect_failed(record, turn, &Error::pool(Kind::Environment, message));
            self.no_longer_busy();
        }
    }

    fn connect_here(self: &Arc<Self>, record: &Arc<Record>, turn: u64) {
        let reading = self.reading(record);
        let connected = or_panicked(|| {
            let token = record.seat.connector.connect()?;
            let snapshot = token.objects()?;
            let generation = self.generation(record.index);
            let connection = SeatConnection::new(Arc::clone(record), generation, token);
            Ok((Arc::new(connection), snapshot))
        });
        match connected {
            Ok((connection, snapshot)) => {
                let join = || {
                    self.join(&connection, turn, &snapshot, reading);
                    Ok(())
                };
                if let Err(error) = or_panicked(join) {
                    self.connect_failed(record, turn, &error);
                    self.down(&connection, &error);
                }
            }
            Err(error) => self.connect_failed(record, turn, &error),
        }
        self.no_longer_busy();
    }

    fn no_longer_busy(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
        self.moved();
    }

    /// Brings the seat into service with the objects that need no proof. Keys follow one by one.
    fn join(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        turn: u64,
        snapshot: &Snapshot,
        reading: Reading<'_>,
    ) {
        let Some(unproved) = self.open(connection, turn, snapshot, reading) else {
            return connection.token.abort("the seat is no longer wanted");
        };
        let record = &connection.record;
        tracing::info!(seat = %record.name, serial = %connection.info.serial, "in service");
        self.watch_member(record);
        self.watch(connection);
        self.hurry_proofs();
        self.moved();
        self.prove(connection, &unproved);
        if !self.options.threads {
            // There is no keeper that does it.
            self.reprove_due(clock::now());
        }
    }

    /// Opens the connection for requests. Answers the keys to prove. `None` if the seat was parked, removed or
    /// connected again meanwhile.
    fn open(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        turn: u64,
        snapshot: &Snapshot,
        reading: Reading<'_>,
    ) -> Option<Vec<ObjectId>> {
        let record = &connection.record;
        let mut life = record.life.lock();
        if life.turn != turn {
            return None;
        }
        // The objects come first: otherwise a request could be told that a key is unknown.
        let (unproved, update) = self.edit(|registry| {
            registry.unsettled.remove(record.index);
            reading.install(registry, &connection.holder(), snapshot, true)
        });
        record.enter(&mut life, LifeState::InService, self.base);
        life.connection = Some(Arc::clone(connection));
        life.last_seen = Some(Arc::clone(&connection.info));
        *record.retry.lock() = Retry::default();
        let mut scheduler = self.scheduler.lock();
        scheduler.open(
            record.index,
            connection.generation,
            Arc::clone(connection),
            self.capacity(connection),
        );
        let grants = scheduler.fill(clock::now());
        drop(scheduler);
        drop(life);
        self.carry_out(update);
        self.hand_out(grants);
        Some(unproved)
    }

    /// The properties of a connection that the scheduler needs.
    pub fn capacity(&self, connection: &SeatConnection) -> Capacity {
        let record = &connection.record;
        Capacity {
            lanes: connection.info.lanes as usize,
            weight: record.seat.weight,
            timeout: record.seat.timeout,
            member: self.first_of(&record.member),
            far: connection.token.process().is_some(),
            pool: record.seat.connector.remote(),
        }
    }

    /// Watches for the connection's end, also if it has already ended.
    pub fn watch(self: &Arc<Self>, connection: &Arc<SeatConnection>) {
        let core = Arc::downgrade(self);
        let watched = Arc::downgrade(connection);
        connection.token.on_lost(Box::new(move |error| {
            if let (Some(core), Some(connection)) = (core.upgrade(), watched.upgrade()) {
                core.down(&connection, &error);
            }
        }));
        if !connection.is_current() {
            self.publish(|registry| registry.away(connection.record.index, connection.generation));
        }
    }

    /// Connects the seats whose back-off is over. Answers when the next one is due.
    pub fn reconnect_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for record in self.records() {
            let mut life = record.life.lock();
            match life.state {
                LifeState::BackOff(until) if until <= now => {
                    record.enter(&mut life, LifeState::Connecting, self.base);
                    let turn = life.turn;
                    drop(life);
                    self.connect(&record, turn);
                }
                LifeState::BackOff(until) => {
                    next = Some(next.map_or(until, |next| next.min(until)));
                }
                _ => {}
            }
        }
        next
    }
}
