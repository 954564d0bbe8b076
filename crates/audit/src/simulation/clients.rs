//! Clients that use keys, administrators, and the answers that they get.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use hsmux_token::Result;

use super::age;
use super::model::EventKind;
use super::run::TrailRun;
use crate::queue::{OnWriteError, WAITING};
use crate::{Actor, Event, OnFailure};

/// A caller that waits for its answer.
pub struct Asked {
    pub number: u64,
    /// `None`: that the file is in its place.
    pub kind: Option<EventKind>,
    pub answer: Receiver<Result<()>>,
}

impl TrailRun {
    pub fn begin_use(&mut self) {
        let is_admitted = self.trail().admit().is_ok();
        self.trace("use begins", u64::from(is_admitted));
        self.uses += usize::from(is_admitted);
        self.model.refused += u64::from(!is_admitted);
        if is_admitted != self.admits() {
            self.fail("a key is used although the trail cannot be written, or not although it can");
        }
    }

    /// The token answers: the event goes to the trail, then the answer to the client.
    pub fn end_use(&mut self) {
        self.uses -= 1;
        let (before, waiting) = (self.trail().status().lost, self.trail().waiting());
        let number = self.model.give(EventKind::Use);
        self.trace("use ends", number);
        self.trail().record(event("C_Sign", number));
        self.trouble.is_full |= waiting >= WAITING;
        let stops = self.settings.on_failure == OnFailure::Stop;
        let lost = waiting >= if stops { 2 * WAITING } else { WAITING };
        let counted = self.trail().status().lost - before;
        if counted != u64::from(lost) || self.trail().waiting() != waiting + usize::from(!lost) {
            self.fail("a line is in the queue, or counted as lost");
        }
        self.waits_since = self.waits_since.or(Some(age()));
    }

    pub fn begin_act(&mut self) {
        let kind = *self
            .random
            .pick(&[EventKind::Announcement, EventKind::ByPolicy]);
        self.ask("act begins", kind, OnWriteError::Withdrawn);
    }

    pub fn end_act(&mut self) {
        self.acts -= 1;
        self.ask("act ends", EventKind::Commit, OnWriteError::Stays);
    }

    fn ask(&mut self, what: &str, kind: EventKind, fate: OnWriteError) {
        self.trouble.is_full |= self.trail().waiting() >= WAITING;
        let number = self.model.give(kind);
        self.trace(what, number);
        let answer = self.trail().ask(event(what, number), fate);
        self.asked.push(Asked {
            number,
            kind: Some(kind),
            answer,
        });
    }

    /// Uses end faster than they are written.
    pub fn flood(&mut self) {
        for _ in 0..self.random.below(3 * WAITING as u64) {
            self.uses += 1;
            self.end_use();
        }
    }

    pub fn hear_answers(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            match asked.answer.try_recv() {
                Err(TryRecvError::Empty) => self.asked.push(asked),
                Err(TryRecvError::Disconnected) => self.fail("a caller gets no answer"),
                Ok(answer) => self.answered(asked.kind, asked.number, answer),
            }
        }
    }

    fn answered(&mut self, kind: Option<EventKind>, number: u64, answer: Result<()>) {
        self.trace(if answer.is_ok() { "ok" } else { "error" }, number);
        match (kind, answer) {
            (None, Ok(())) => self.check_place(),
            (None | Some(EventKind::Commit | EventKind::Use), Err(_)) => {}
            (Some(kind), Ok(())) => {
                self.check_synced(kind, number);
                self.acts += usize::from(kind != EventKind::Commit);
            }
            (Some(EventKind::Announcement), Err(_)) => self.must_withdraw(number),
            (Some(EventKind::ByPolicy), Err(error)) => {
                self.must_withdraw(number);
                let begins = self.trail().go_on_by_policy(&error).is_ok();
                if begins == (self.settings.on_failure == OnFailure::Stop) {
                    self.fail("an act begins or not, against the policy");
                }
                if begins {
                    self.model.lose_act();
                }
                self.model.refused += u64::from(!begins);
                self.acts += usize::from(begins);
            }
        }
    }

    fn must_withdraw(&mut self, number: u64) {
        let withdrawn = self.model.withdraw(number);
        self.must(withdrawn);
    }

    pub fn end_clients(&mut self) {
        (self.uses, self.acts) = (0, 0);
        self.asked.clear();
    }
}

fn event(call: &str, number: u64) -> Event {
    let actor = Arc::new(Actor::process(7, 42, "a program"));
    let event = match call {
        "C_Sign" => Event::key_use(&actor, "C_Sign", "00ff"),
        act => Event::act(&actor, act, serde_json::Map::new()),
    };
    event.request(number.to_string())
}
