//! The life of a seat: connecting, in service, resting after a loss, parked, gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result, Snapshot, Token, ck};

use crate::core::Core;
use crate::record::{Connection, Life, Record, Retry, State};
use crate::registry::Holder;

/// A seat that was in service for so long starts its back-off from the beginning.
const STEADY: Duration = Duration::from_secs(30);

impl Core {
    /// Connects a seat that is in [`State::Connecting`], on a thread of its own if there may be one.
    pub fn connect(self: &Arc<Self>, record: &Arc<Record>, turn: u64) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        if !self.options.threads {
            return self.connect_here(record, turn);
        }
        let core = Arc::clone(self);
        let connecting = Arc::clone(record);
        let name = format!("hsmux-{}", record.name);
        let started = std::thread::Builder::new()
            .name(name)
            .spawn(move || core.connect_here(&connecting, turn));
        if let Err(error) = started {
            let message = format!("no thread to connect {}: {error}", record.name);
            self.connect_failed(record, turn, &Error::pool(Kind::Environment, message));
            self.no_longer_busy();
        }
    }

    fn connect_here(self: &Arc<Self>, record: &Arc<Record>, turn: u64) {
        let connected = record.seat.connector.connect().and_then(|token| {
            let snapshot = token.objects()?;
            Ok((token, snapshot))
        });
        match connected {
            Ok((token, snapshot)) => self.join(record, turn, token, &snapshot),
            Err(error) => self.connect_failed(record, turn, &error),
        }
        self.no_longer_busy();
    }

    fn no_longer_busy(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
        self.moved();
    }

    /// The seat comes into service with what needs no proof; keys follow one by one.
    fn join(
        self: &Arc<Self>,
        record: &Arc<Record>,
        turn: u64,
        token: Arc<dyn Token>,
        snapshot: &Snapshot,
    ) {
        let info = token.info();
        let connection = Arc::new(Connection {
            record: Arc::clone(record),
            generation: self.generation(record.index),
            token,
            info: Arc::clone(&info),
        });
        let mut life = record.life.lock();
        if life.turn != turn {
            drop(life);
            return connection.token.abort("the seat is no longer wanted");
        }
        record.enter(&mut life, State::InService, self.base);
        life.connection = Some(Arc::clone(&connection));
        *record.retry.lock() = Retry::default();
        let lanes = info.lanes as usize;
        self.scheduler.lock().open(
            record.index,
            connection.generation,
            Arc::clone(&connection),
            (lanes, record.seat.weight, record.seat.timeout),
        );
        drop(life);
        tracing::info!(seat = %record.name, serial = %info.serial, "in service");
        let unproved = self.publish(|registry| {
            registry.unsettled.remove(record.index);
            registry.install(record.index, &holder(&connection), snapshot, true)
        });
        self.watch(&connection);
        self.moved();
        self.prove(&connection, &unproved);
    }

    /// Learns of the connection's end, also if it has ended while the seat was being installed.
    fn watch(self: &Arc<Self>, connection: &Arc<Connection>) {
        let core = Arc::downgrade(self);
        let watched = Arc::downgrade(connection);
        connection.token.on_lost(Box::new(move |error| {
            if let (Some(core), Some(connection)) = (core.upgrade(), watched.upgrade()) {
                core.down(&connection, &error);
            }
        }));
        if !connection.is_current() {
            self.publish(|registry| registry.away(connection.record.index));
        }
    }

    fn connect_failed(self: &Arc<Self>, record: &Arc<Record>, turn: u64, error: &Error) {
        let mut life = record.life.lock();
        if life.turn != turn {
            return;
        }
        tracing::warn!(seat = %record.name, "not connected: {error}");
        life.note(error);
        self.rest(record, &mut life, error);
        drop(life);
        self.settled(record);
    }

    /// The seat has shown that it cannot show its objects now; nobody waits for them any longer.
    fn settled(self: &Arc<Self>, record: &Arc<Record>) {
        let parked = matches!(record.life.lock().state, State::Parked(_));
        self.publish(|registry| {
            registry.unsettled.remove(record.index);
            if parked {
                registry.expected.remove(record.index);
            }
        });
    }

    /// After a failure: back-off, or parked when trying again would do harm.
    fn rest(&self, record: &Record, life: &mut Life, error: &Error) {
        let steady = matches!(life.state, State::InService)
            && life.since.elapsed().is_ok_and(|served| served >= STEADY);
        if steady {
            life.attempts = 0;
        }
        let state = if pin_refused(error) {
            State::Parked(error.to_string())
        } else {
            State::BackOff(life.next_attempt())
        };
        life.attempts += 1;
        record.enter(life, state.clone(), self.base);
        if let State::BackOff(until) = state {
            self.alarm.by(until);
        }
    }

    /// The connection has ended, or is ended now because it hangs.
    pub fn down(self: &Arc<Self>, connection: &Arc<Connection>, error: &Error) {
        let record = &connection.record;
        let mut life = record.life.lock();
        let current = life.connection.as_ref();
        if current.is_none_or(|current| current.generation != connection.generation) {
            return;
        }
        life.note(error);
        if matches!(life.state, State::Draining) {
            life.connection = None;
        } else {
            self.rest(record, &mut life, error);
        }
        drop(life);
        tracing::warn!(seat = %record.name, "out of service: {error}");
        self.close(connection, error);
    }

    /// Takes a connection out of service; what ran there moves on.
    pub fn close(self: &Arc<Self>, connection: &Arc<Connection>, error: &Error) {
        let record = &connection.record;
        let closed = self
            .scheduler
            .lock()
            .close(record.index, connection.generation);
        let orphans = closed.unwrap_or_default();
        let parked = matches!(record.life.lock().state, State::Parked(_));
        self.publish(|registry| {
            registry.away(record.index);
            if parked {
                registry.expected.remove(record.index);
            }
        });
        connection.token.abort(&error.to_string());
        let lost = if error.ends_connection() {
            error.clone()
        } else {
            Error::lost(error.to_string())
        };
        for work in orphans {
            self.orphaned(work, connection, &lost);
        }
        self.moved();
    }

    /// No new requests for a seat; what runs there goes on.
    pub fn drain(self: &Arc<Self>, record: &Arc<Record>) {
        let mut life = record.life.lock();
        let Some(connection) = life.connection.clone() else {
            return;
        };
        record.enter(&mut life, State::Draining, self.base);
        drop(life);
        self.scheduler
            .lock()
            .drain(record.index, connection.generation);
        self.publish(|registry| {
            registry.away(record.index);
            registry.expected.remove(record.index);
        });
    }

    /// Out of service until somebody says otherwise, or for good.
    pub fn retire_now(self: &Arc<Self>, record: &Arc<Record>, state: State, reason: &str) {
        let mut life = record.life.lock();
        let connection = life.connection.clone();
        let removed = matches!(state, State::Removed);
        record.enter(&mut life, state, self.base);
        drop(life);
        if let Some(connection) = connection {
            self.close(&connection, &Error::lost(reason));
        }
        self.publish(|registry| {
            registry.expected.remove(record.index);
            registry.unsettled.remove(record.index);
            if removed {
                registry.leave(record.index);
            }
        });
    }

    /// Reads the objects of a seat again and proves the new ones, or all of them anew.
    pub fn reread(self: &Arc<Self>, connection: &Arc<Connection>, anew: bool) -> Result<()> {
        let snapshot = connection.token.objects().inspect_err(|error| {
            if error.ends_connection() {
                self.down(connection, error);
            }
        })?;
        let index = connection.record.index;
        let unproved =
            self.publish(|registry| registry.install(index, &holder(connection), &snapshot, anew));
        if !connection.is_current() {
            self.publish(|registry| registry.away(index));
        }
        self.prove(connection, &unproved);
        Ok(())
    }

    /// Connects the seats whose back-off is over; says when the next one is.
    pub fn reconnect_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for record in self.records() {
            let mut life = record.life.lock();
            match life.state {
                State::BackOff(until) if until <= now => {
                    record.enter(&mut life, State::Connecting, self.base);
                    let turn = life.turn;
                    drop(life);
                    self.connect(&record, turn);
                }
                State::BackOff(until) => next = Some(next.map_or(until, |next| next.min(until))),
                _ => {}
            }
        }
        next
    }

    /// Tells those who wait for seats to come or go.
    pub fn moved(&self) {
        let _held = self.moved.0.lock();
        self.moved.1.notify_all();
    }
}

/// Another attempt might lock the token.
fn pin_refused(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::PinHeld
            | Kind::PinIncorrect
            | Kind::Vendor(
                ck::CKR_PIN_INCORRECT
                    | ck::CKR_PIN_INVALID
                    | ck::CKR_PIN_LEN_RANGE
                    | ck::CKR_PIN_EXPIRED
                    | ck::CKR_PIN_LOCKED
            )
    )
}

fn holder(connection: &Connection) -> Holder {
    Holder {
        seat: Arc::clone(&connection.record.name),
        member: Arc::clone(&connection.record.member),
        info: Arc::clone(&connection.info),
        generation: connection.generation,
    }
}
