//! Detects tokens that hang.
//!
//! An operation that a worker was given need not have begun. A card does one thing at a time, and the others wait in
//! its module for a lock that is not fair. So operations have no clock of their own: a token hangs if it has answered
//! nothing for as long as one operation may take. Answers of others would hide an operation that hangs or starves.
//! So a worker gets nothing more once one operation has been overtaken for half of its time. That operation then has
//! the token to itself: it is answered, or the token hangs.
//!
//! This process itself may have stopped, by a signal or with its virtual machine. Answers are then there and unread.
//! So a seat that seems to hang is looked at twice.

use std::time::{Duration, Instant};

use super::load::{ActiveRun, SeatLoad};

/// The answers that a seat owes.
#[derive(Default)]
pub(super) struct AnswerState {
    /// Since when something has run there, and nothing was answered.
    silent: Option<Instant>,
    /// The run that is to be answered before the seat is given anything else.
    first: Option<u64>,
    /// The time of the second look, if it seems to hang.
    again: Option<Instant>,
}

/// The time between the two looks.
const AGAIN: Duration = Duration::from_millis(250);

impl AnswerState {
    /// Waits for an answer from now on.
    pub fn expected_from(&mut self, now: Instant) {
        self.silent = Some(now);
        self.again = None;
    }

    /// True if the seat is given nothing more for now.
    pub fn one_is_waited_for(&self) -> bool {
        self.first.is_some()
    }
}

impl<W, C> SeatLoad<W, C> {
    /// The time at which it is looked at: the other operations wait behind the one that may take longest.
    pub fn limit(&self) -> Option<Instant> {
        let longest = self.running.iter().map(|run| run.allowed).max()?;
        let silent = self.answers.silent? + longest;
        Some(self.answers.again.unwrap_or(silent))
    }

    /// True if the token hangs.
    pub fn hangs(&mut self, now: Instant) -> bool {
        let silent = self.limit().is_some_and(|limit| limit <= now);
        let seemed_to = self.answers.again.is_some();
        if silent && !seemed_to {
            self.answers.again = Some(now + AGAIN);
        }
        silent && seemed_to
    }

    /// A run that has left `running` was answered.
    pub fn note_answer(&mut self, number: u64, now: Instant) {
        self.answers.expected_from(now);
        if self.answers.first == Some(number) {
            self.answers.first = None;
        }
        if self.capacity.pool || self.answers.first.is_some() {
            return;
        }
        // All others overtake a new key, so it has all of its time.
        let overtaken = |run: &&ActiveRun<W>| {
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
