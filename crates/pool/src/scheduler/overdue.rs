//! Deadlines and hangs that are due.

use std::time::Instant;

use super::Scheduler;
use super::load::SeatLoad;

/// Requests and seats that are due.
pub(crate) struct Overdue<W, C> {
    /// Requests that waited until their deadline.
    pub waiting: Vec<W>,
    /// Requests that still run, but whose callers have to be answered.
    pub running: Vec<W>,
    /// The connections that hang, each with its generation.
    pub hung: Vec<(C, u64)>,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Takes what is due now.
    pub fn overdue(&mut self, now: Instant) -> Overdue<W, C> {
        let mut overdue = Overdue {
            waiting: self.queue.expire(now),
            running: Vec::new(),
            hung: Vec::new(),
        };
        for load in self.seats.iter_mut().flatten().chain(&mut self.leaving) {
            if load.hangs(now) {
                overdue
                    .hung
                    .push((load.connection.clone(), load.generation));
            }
            for run in &mut load.running {
                if run.deadline <= now {
                    overdue.running.extend(run.work.take());
                }
            }
        }
        overdue
    }

    /// The next time at which something is due.
    pub fn nearest(&self) -> Option<Instant> {
        let loads = || self.seats.iter().flatten().chain(&self.leaving);
        let runs = loads().flat_map(|load| &load.running);
        let told = runs.filter(|run| run.work.is_some());
        let due = told.map(|run| run.deadline);
        let hung = loads().filter_map(SeatLoad::limit);
        due.chain(hung).chain(self.queue.nearest()).min()
    }
}
