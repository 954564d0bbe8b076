//! Takes seats out of service: after a loss, parked, or removed.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Kind, ck};

use crate::clock;
use crate::core::Core;
use crate::record::{Life, LifeState, Record, SeatConnection};

/// After this time in service, the back-off of a seat starts from the beginning.
const STEADY: Duration = Duration::from_secs(30);

impl Core {
    /// Connects a seat if `wanted` holds for its state. A removed seat is not connected: another seat may have its
    /// index.
    pub fn begin(self: &Arc<Self>, record: &Arc<Record>, wanted: impl FnOnce(&LifeState) -> bool) {
        let mut life = record.life.lock();
        if matches!(life.state, LifeState::Removed) || !wanted(&life.state) {
            return;
        }
        record.enter(&mut life, LifeState::Connecting, self.base);
        let turn = life.turn;
        let ((), update) = self.edit(|registry| {
            registry.expected.insert(record.index);
            registry.unsettled.insert(record.index);
        });
        drop(life);
        self.carry_out(update);
        self.moved();
        self.connect(record, turn);
    }

    /// An attempt to connect has failed.
    pub fn connect_failed(self: &Arc<Self>, record: &Arc<Record>, turn: u64, error: &Error) {
        let mut life = record.life.lock();
        if life.turn != turn {
            return;
        }
        tracing::warn!(seat = %record.name, "not connected: {error}");
        record.note(error);
        self.rest(record, &mut life, error);
        // The seat cannot show its objects now, so requests do not wait for them.
        let parked = matches!(life.state, LifeState::Parked(_));
        let ((), update) = self.edit(|registry| {
            registry.unsettled.remove(record.index);
            if parked {
                registry.expected.remove(record.index);
            }
        });
        drop(life);
        self.carry_out(update);
        self.moved();
    }

    /// After a failure: back-off, or parked if another try would do harm.
    fn rest(&self, record: &Record, life: &mut Life, error: &Error) {
        let served = clock::wall().duration_since(life.since);
        let steady = matches!(life.state, LifeState::InService)
            && served.is_ok_and(|served| served >= STEADY);
        if steady {
            life.attempts = 0;
        }
        let state = if pin_refused(error) {
            LifeState::Parked(error.to_string())
        } else {
            LifeState::BackOff(life.next_attempt())
        };
        life.attempts += 1;
        record.enter(life, state.clone(), self.base);
        if let LifeState::BackOff(until) = state {
            self.alarm.by(until);
        }
    }

    /// The connection has ended, or hangs and is ended now.
    pub fn down(self: &Arc<Self>, connection: &Arc<SeatConnection>, error: &Error) {
        let record = &connection.record;
        let mut life = record.life.lock();
        let current = life.connection.as_ref();
        if current.is_none_or(|current| current.generation != connection.generation) {
            drop(life);
            // It was replaced by another connection. Its running operations have to end.
            if self.scheduler.lock().is_leaving(connection.generation) {
                self.close(connection, error);
            }
            return;
        }
        record.note(error);
        if matches!(life.state, LifeState::Draining) {
            life.connection = None;
        } else {
            self.rest(record, &mut life, error);
        }
        drop(life);
        tracing::warn!(seat = %record.name, "out of service: {error}");
        self.close(connection, error);
    }

    /// Takes a connection out of service. Its requests move to other seats.
    pub fn close(self: &Arc<Self>, connection: &Arc<SeatConnection>, error: &Error) {
        let record = &connection.record;
        let closed = self
            .scheduler
            .lock()
            .close(record.index, connection.generation);
        let orphans = closed.unwrap_or_default();
        let life = record.life.lock();
        let parked = matches!(life.state, LifeState::Parked(_));
        let ((), update) = self.edit(|registry| {
            registry.away(record.index, connection.generation);
            if parked {
                registry.expected.remove(record.index);
            }
        });
        drop(life);
        self.carry_out(update);
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

    /// Gives a seat no new requests. Its running operations go on.
    pub fn drain(self: &Arc<Self>, record: &Arc<Record>) {
        let mut life = record.life.lock();
        let Some(connection) = life.connection.clone() else {
            return;
        };
        record.enter(&mut life, LifeState::Draining, self.base);
        self.scheduler
            .lock()
            .drain(record.index, connection.generation);
        let ((), update) = self.edit(|registry| {
            registry.away(record.index, connection.generation);
            registry.expected.remove(record.index);
        });
        drop(life);
        self.carry_out(update);
        self.moved();
    }

    /// Takes a seat out of service, until an administrator resumes it or for good. `false` if it was already removed:
    /// its index may belong to another seat.
    pub fn retire_now(
        self: &Arc<Self>,
        record: &Arc<Record>,
        state: LifeState,
        reason: &str,
    ) -> bool {
        let mut life = record.life.lock();
        if matches!(life.state, LifeState::Removed) {
            return false;
        }
        let connection = life.connection.clone();
        let removed = matches!(state, LifeState::Removed);
        record.enter(&mut life, state, self.base);
        let ((), update) = self.edit(|registry| {
            registry.expected.remove(record.index);
            registry.unsettled.remove(record.index);
            if removed {
                registry.leave(record.index);
            }
        });
        drop(life);
        self.carry_out(update);
        if let Some(connection) = connection {
            self.close(&connection, &Error::lost(reason));
        }
        self.hurry_proofs();
        self.moved();
        true
    }

    /// Wakes callers that wait for seats to come or go.
    pub fn moved(&self) {
        let _held = self.moved.lock();
        self.moved.notify_all();
    }
}

/// True if another attempt might lock the token.
pub(crate) fn pin_refused(error: &Error) -> bool {
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
