//! What others ask of the scheduler, which changes nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::load::Load;
use super::{LATELY, Scheduler, Spread};
use crate::Owner;

/// What one seat does now.
#[derive(Default)]
pub(crate) struct Activity {
    pub running: usize,
    pub lanes: usize,
    /// Requests in the queue that it could serve.
    pub waiting: usize,
    pub latency: Duration,
    pub spread: Spread,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The same at any time, without a lock.
    pub fn queued(&self) -> Arc<AtomicUsize> {
        self.queue.told()
    }

    /// Whether the seat serves, by operations that are hardly longer than the way to it.
    pub fn is_short(&self, seat: usize) -> bool {
        self.load(seat).is_some_and(Load::is_short)
    }

    /// Whether it is given nothing for now.
    pub fn is_held(&self, seat: usize) -> bool {
        self.load(seat).is_some_and(|load| load.held)
    }

    /// Whether operations of its token are known to be short, by any worker: by one at least they were lately.
    pub fn is_of_short_token(&self, seat: usize) -> bool {
        let of_token = |member| {
            let all = self.seats.iter().flatten();
            let mut workers = all.filter(move |load| load.capacity.member == member);
            workers.any(Load::was_short)
        };
        let load = self.load(seat);
        load.is_some_and(|load| of_token(load.capacity.member))
    }

    /// What a seat does; `None` when it is out of service.
    pub fn activity(&self, seat: usize) -> Option<Activity> {
        let load = self.load(seat)?;
        Some(Activity {
            running: load.running.len(),
            lanes: load.capacity.lanes,
            waiting: self.queue.len_for(seat),
            latency: load.latency(),
            spread: load.spread,
        })
    }

    /// How long it takes to serve all that wait.
    pub(super) fn drain_time(&self) -> Duration {
        let rate: f64 = self
            .seats
            .iter()
            .flatten()
            .map(|load| load.capacity.lanes as f64 / load.latency().as_secs_f64().max(1e-6))
            .sum();
        let seconds = if rate > 0.0 {
            self.queue.len() as f64 / rate
        } else {
            1.0
        };
        Duration::from_secs_f64(seconds.clamp(0.001, 60.0))
    }

    /// Whether requests may stand behind those that run on this seat, whoever's is next.
    pub(super) fn takes_ahead(&self, seat: usize, now: Instant) -> bool {
        let deep = !self
            .last
            .is_some_and(|(owner, _)| self.is_mixed(owner, now));
        self.ahead.contains(seat) && self.load(seat).is_some_and(|load| load.takes_ahead(deep))
    }

    /// Whether somebody else than this owner had a request lately: what stands behind the running ones at a worker is
    /// out of reach, and this owner would have more than its share.
    pub(super) fn is_mixed(&self, owner: Owner, now: Instant) -> bool {
        let of_others = match self.last {
            Some((last, at)) if last != owner => Some(at),
            _ => self.before,
        };
        of_others.is_some_and(|at| now.saturating_duration_since(at) < LATELY)
    }

    pub(super) fn load(&self, seat: usize) -> Option<&Load<W, C>> {
        self.seats.get(seat)?.as_ref()
    }
}
