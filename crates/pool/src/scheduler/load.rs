//! What one seat has to do, and how fast it does it.

use std::time::{Duration, Instant};

use super::Term;

/// A seat in service.
pub(super) struct Load<W, C> {
    /// Of the connection; never used twice.
    pub generation: u64,
    pub connection: C,
    pub lanes: usize,
    pub weight: u32,
    /// One operation may take this long, times [`Term::patience`].
    pub timeout: Duration,
    pub running: Vec<Run<W>>,
    /// Credit of the round-robin policy.
    pub credit: i64,
    /// Moving average of the time that one operation takes, in nanoseconds.
    latency: u64,
    /// Operations in it, up to [`MEMORY`].
    samples: u64,
    /// The same divided by the weight.
    weighted: u64,
    last: Instant,
}

pub(super) struct Run<W> {
    pub number: u64,
    pub started: Instant,
    /// Past this the token hangs.
    pub limit: Instant,
    /// Past this the caller is answered, though the token is still at it.
    pub deadline: Instant,
    /// Absent when nobody is to be told: the caller runs it, or has been answered.
    pub work: Option<W>,
}

/// How an operation ended, as far as the load is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The token did its work, even if it said no.
    Served,
    /// It did work of the pool's own, which says nothing about how fast it serves.
    Aside,
    /// The token failed. That it failed fast must not draw more requests.
    Failed,
}

/// An average counts half after it was not renewed for 2^32 ns (4.3 s), so that a seat that once
/// was slow is tried again.
const FADING: u32 = 32;
/// How many operations an average looks back; the first ones weigh the same, so that one that was slow
/// because it was the first is soon forgotten.
const MEMORY: u64 = 8;
/// Nanoseconds below which tokens count as equally fast.
const FLOOR: u64 = 1000;

impl<W, C> Load<W, C> {
    pub fn new(
        generation: u64,
        connection: C,
        lanes: usize,
        weight: u32,
        timeout: Duration,
    ) -> Self {
        Self {
            generation,
            connection,
            lanes: lanes.max(1),
            weight: weight.clamp(1, 1000),
            timeout,
            running: Vec::with_capacity(lanes.min(64)),
            credit: 0,
            latency: 0,
            samples: 0,
            weighted: FLOOR,
            last: Instant::now(),
        }
    }

    pub fn free(&self) -> bool {
        self.running.len() < self.lanes
    }

    /// latency / weight × (pending + 1): the lower, the better.
    pub fn cost(&self, now: Instant) -> u64 {
        let idle = now.saturating_duration_since(self.last).as_nanos() as u64 >> FADING;
        let latency = self.weighted >> idle.min(u64::from(u64::BITS) - 1);
        latency.max(1) * (self.running.len() as u64 + 1)
    }

    pub fn start(&mut self, number: u64, now: Instant, term: Term, work: Option<W>) {
        self.running.push(Run {
            number,
            started: now,
            limit: now + self.timeout * term.patience,
            deadline: term.deadline,
            work,
        });
    }

    /// Its work, if it is still this run's to answer.
    pub fn finish(&mut self, number: u64, now: Instant, verdict: Verdict) -> Option<W> {
        let at = self.running.iter().position(|run| run.number == number)?;
        let run = self.running.swap_remove(at);
        let took = now.saturating_duration_since(run.started).as_nanos() as u64;
        match verdict {
            Verdict::Aside => return run.work,
            Verdict::Served => {
                self.samples = MEMORY.min(self.samples + 1);
                self.latency = self.latency - self.latency / self.samples + took / self.samples;
            }
            Verdict::Failed => {
                let slower = self.latency.max(took).max(FLOOR).saturating_mul(2);
                self.latency = slower.min(1 << 34);
            }
        }
        self.weighted = self.latency.max(FLOOR) / u64::from(self.weight);
        self.last = now;
        run.work
    }

    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency)
    }
}
