//! Slots that tokens come to and go from, as somebody who watches them tells: the pool itself would learn
//! of a token that has gone by the next operation on it, and of its return by the next attempt after a
//! rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hsmux_token::Error;

use crate::Pool;
use crate::clock;
use crate::core::Core;
use crate::record::{Life, LifeState, Record};

impl Pool {
    /// Waits until there is something to watch: a seat whose token sits in such a slot, or did, or that
    /// has never found its token. `false` when the pool has stopped.
    pub fn wait_for_slots(&self) -> bool {
        let core = &self.core;
        let mut moved = core.moved.lock();
        while !core.stopping.load(Ordering::Acquire) {
            let records = core.records();
            if records.iter().any(|record| record.life.lock().may_move()) {
                return true;
            }
            moved = core.moved.wait(moved);
        }
        false
    }

    /// The token of this slot has gone: the seats of `members` that served by it rest from now on, and
    /// what ran there moves on. `why` is for people.
    pub fn token_left(&self, slot: &str, why: &str, members: impl Fn(&str) -> bool) {
        for record in self.core.records() {
            let connection = record.life.lock().connection.clone();
            if let Some(connection) = connection
                && connection.info.slot.as_deref() == Some(slot)
                && members(&record.member)
            {
                self.core.down(&connection, &Error::lost(why));
            }
        }
    }

    /// There is a token in this slot: the seats that served by it before are tried at once if they rest,
    /// or all those that it may be the token of.
    pub fn token_came(&self, slot: &str) {
        let mut resting = self.core.records();
        resting.retain(|record| record.life.lock().may_return());
        let (own, others): (Vec<_>, Vec<_>) = resting
            .into_iter()
            .partition(|record| record.life.lock().slot() == Some(slot));
        for record in if own.is_empty() { others } else { own } {
            self.core.hurry(&record);
        }
    }
}

impl Core {
    /// Ends a back-off. If it is too early after all, the next one is short again.
    fn hurry(&self, record: &Arc<Record>) {
        let mut life = record.life.lock();
        life.attempts = 0;
        if matches!(life.state, LifeState::BackOff(_)) {
            record.enter(&mut life, LifeState::BackOff(clock::now()), self.base);
            drop(life);
            self.alarm.now();
        }
    }
}

impl Life {
    /// The slot that its token was last in, if it can leave it.
    fn slot(&self) -> Option<&str> {
        self.last_seen.as_ref()?.slot.as_deref()
    }

    fn may_move(&self) -> bool {
        match self.last_seen {
            Some(_) => self.slot().is_some(),
            None => matches!(self.state, LifeState::BackOff(_)),
        }
    }

    fn may_return(&self) -> bool {
        let tried = matches!(self.state, LifeState::BackOff(_) | LifeState::Connecting);
        tried && (self.last_seen.is_none() || self.slot().is_some())
    }
}
