//! When a token hangs, and what is done for those that others overtake.
//!
//! An operation that a worker was given need not have begun: a card does one thing at a time, and the others
//! wait in its module, some for long, for the lock there is not fair. So an operation has no clock of its own: a
//! token hangs when it has answered nothing for as long as one operation may take. That would hide one that
//! hangs, or starves, behind others that are answered. So a worker is given nothing more once one operation has
//! been overtaken for half of its time: it has the token to itself then, and is answered, or the token hangs.
//!
//! And this process may have stood still, by a signal or with its virtual machine: answers are there then that nobody
//! has read. So who seems to hang is looked at twice.

use std::time::{Duration, Instant};

use super::load::{Load, Run};

/// What a seat owes.
#[derive(Default)]
pub(super) struct AnswerState {
    /// Since when something has run there, and nothing was answered.
    silent: Option<Instant>,
    /// The run that is to be answered before the seat is given anything else.
    first: Option<u64>,
    /// It seems to hang: when it is looked at again.
    again: Option<Instant>,
}

/// Between the two looks.
const AGAIN: Duration = Duration::from_millis(250);

impl AnswerState {
    /// From now on an answer is waited for.
    pub fn expected_from(&mut self, now: Instant) {
        self.silent = Some(now);
        self.again = None;
    }

    /// Whether the seat is given nothing more for now.
    pub fn one_is_waited_for(&self) -> bool {
        self.first.is_some()
    }
}

impl<W, C> Load<W, C> {
    /// When it is to be looked at: those that run stand behind the one that may take longest.
    pub fn limit(&self) -> Option<Instant> {
        let longest = self.running.iter().map(|run| run.allowed).max()?;
        let silent = self.answers.silent? + longest;
        Some(self.answers.again.unwrap_or(silent))
    }

    /// Whether the token hangs.
    pub fn hangs(&mut self, now: Instant) -> bool {
        let silent = self.limit().is_some_and(|limit| limit <= now);
        let seemed_to = self.answers.again.is_some();
        if silent && !seemed_to {
            self.answers.again = Some(now + AGAIN);
        }
        silent && seemed_to
    }

    /// A run that is no longer among the others has been answered.
    pub fn note_answer(&mut self, number: u64, now: Instant) {
        self.answers.expected_from(now);
        if self.answers.first == Some(number) {
            self.answers.first = None;
        }
        if self.capacity.pool || self.answers.first.is_some() {
            return;
        }
        // A new key is overtaken by all that runs beside it, and has to have all of its time.
        let overtaken = |run: &&Run<W>| {
            let enough = if run.slow {
                run.allowed
            } else {
                run.allowed / 2
            };
            run.number < number && now.saturating_duration_since(run.started) >= enough
        };
        self.answers.first = self.running.iter().find(overtaken).map(|run| run.number);
    }
}
