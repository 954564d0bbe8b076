//! When a token hangs, and what is done for those that others overtake.
//!
//! An operation that a worker was given need not have begun: a card does one thing at a time, and the others
//! wait in its module, some for long, for the lock there is not fair. So an operation has no clock of its own: a
//! token hangs when it has answered nothing for as long as one operation may take. That would hide one that
//! hangs, or starves, behind others that are answered. So a worker is given nothing more once one operation has
//! been overtaken for half of its time: it has the token to itself then, and is answered, or the token hangs.

use std::time::Instant;

use super::load::{Load, Run};

/// What a seat owes.
#[derive(Default)]
pub(super) struct Answers {
    /// Since when something has run there, and nothing was answered.
    silent: Option<Instant>,
    /// The run that is to be answered before the seat is given anything else.
    first: Option<u64>,
}

impl Answers {
    /// The first operation has begun.
    pub fn expected_from(&mut self, now: Instant) {
        self.silent = Some(now);
    }

    /// Whether the seat is given nothing more for now.
    pub fn one_is_waited_for(&self) -> bool {
        self.first.is_some()
    }
}

impl<W, C> Load<W, C> {
    /// Past this the token hangs: those that run stand behind the one that may take longest.
    pub fn limit(&self) -> Option<Instant> {
        let longest = self.running.iter().map(|run| run.allowed).max()?;
        Some(self.answers.silent? + longest)
    }

    /// A run that is no longer among the others has been answered.
    pub fn note_answer(&mut self, number: u64, now: Instant) {
        self.answers.silent = Some(now);
        if self.answers.first == Some(number) {
            self.answers.first = None;
        }
        if self.capacity.pool || self.answers.first.is_some() {
            return;
        }
        let overtaken = |run: &&Run<W>| {
            run.number < number && now.saturating_duration_since(run.started) >= run.allowed / 2
        };
        self.answers.first = self.running.iter().find(overtaken).map(|run| run.number);
    }
}
