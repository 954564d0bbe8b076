//! How a seat goes out of service: resting after a loss, parked, removed.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Kind, ck};

use crate::core::Core;
use crate::record::{Connection, Life, Record, State};

/// A seat that was in service for so long starts its back-off from the beginning.
const STEADY: Duration = Duration::from_secs(30);

impl Core {
    /// Connects a seat whose state is a wanted one at this moment. One that was removed stays so: another seat may
    /// have its place by now.
    pub fn begin(self: &Arc<Self>, record: &Arc<Record>, wanted: impl FnOnce(&State) -> bool) {
        let mut life = record.life.lock();
        if matches!(life.state, State::Removed) || !wanted(&life.state) {
            return;
        }
        record.enter(&mut life, State::Connecting, self.base);
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

    /// No connection this time.
    pub fn connect_failed(self: &Arc<Self>, record: &Arc<Record>, turn: u64, error: &Error) {
        let mut life = record.life.lock();
        if life.turn != turn {
            return;
        }
        tracing::warn!(seat = %record.name, "not connected: {error}");
        record.note(error);
        self.rest(record, &mut life, error);
        // It has shown that it cannot show its objects now: nobody waits for them any longer.
        let parked = matches!(life.state, State::Parked(_));
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
            drop(life);
            // Another one serves in its place, and what it still runs is to end.
            if self.scheduler.lock().is_leaving(connection.generation) {
                self.close(connection, error);
            }
            return;
        }
        record.note(error);
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
        let life = record.life.lock();
        let parked = matches!(life.state, State::Parked(_));
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

    /// No new requests for a seat; what runs there goes on.
    pub fn drain(self: &Arc<Self>, record: &Arc<Record>) {
        let mut life = record.life.lock();
        let Some(connection) = life.connection.clone() else {
            return;
        };
        record.enter(&mut life, State::Draining, self.base);
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

    /// Out of service until somebody says otherwise, or for good. `false`: somebody else has removed it, and its
    /// place may be another seat's.
    pub fn retire_now(self: &Arc<Self>, record: &Arc<Record>, state: State, reason: &str) -> bool {
        let mut life = record.life.lock();
        if matches!(life.state, State::Removed) {
            return false;
        }
        let connection = life.connection.clone();
        let removed = matches!(state, State::Removed);
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

    /// Tells those who wait for seats to come or go.
    pub fn moved(&self) {
        let _held = self.moved.0.lock();
        self.moved.1.notify_all();
    }
}

/// Another attempt might lock the token.
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
