//! Queries of the scheduler's state, which change nothing.

use std::time::{Duration, Instant};

use super::load::SeatLoad;
use super::{LATELY, Scheduler, Spread};
use crate::Owner;
#[cfg(test)]
use crate::{scheduler::Term, seatset::SeatSet};

/// The present work of one seat.
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
    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// True if the seat serves, and its operations are hardly longer than the way to it.
    pub fn is_short(&self, seat: usize) -> bool {
        self.load(seat).is_some_and(SeatLoad::is_short)
    }

    /// True if any worker of its token had short operations lately.
    pub fn is_of_short_token(&self, seat: usize) -> bool {
        let of_token = |member| {
            let all = self.seats.iter().flatten();
            let mut workers = all.filter(move |load| load.capacity.member == member);
            workers.any(SeatLoad::was_short)
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

    /// The time to serve all that wait.
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

    /// True if requests of the next owner may wait behind the running ones on this seat.
    pub(super) fn takes_ahead(&self, seat: usize, now: Instant) -> bool {
        let deep = !self
            .last
            .is_some_and(|(owner, _)| self.is_mixed(owner, now));
        self.ahead.contains(seat) && self.load(seat).is_some_and(|load| load.takes_ahead(deep))
    }

    /// True if another owner had a request lately. Requests that wait at a worker cannot be reordered, so this owner
    /// would get more than its share.
    pub(super) fn is_mixed(&self, owner: Owner, now: Instant) -> bool {
        let of_others = match self.last {
            Some((last, at)) if last != owner => Some(at),
            _ => self.before,
        };
        of_others.is_some_and(|at| now.saturating_duration_since(at) < LATELY)
    }

    /// Seats with a free lane.
    #[cfg(test)]
    pub fn free_seats(&self) -> SeatSet {
        self.free
    }

    /// Seats that take requests, with the generations of their connections.
    #[cfg(test)]
    pub fn open_seats(&self) -> impl Iterator<Item = (usize, u64)> {
        let seats = self.seats.iter().enumerate();
        let open = seats.filter_map(|(seat, load)| Some((seat, load.as_ref()?)));
        let open = open.filter(|(_, load)| load.capacity.lanes > 0);
        open.map(|(seat, load)| (seat, load.generation))
    }

    /// All that wait, each with the seats that can serve it.
    #[cfg(test)]
    pub fn queued(&self) -> impl Iterator<Item = (SeatSet, Term, &W)> {
        self.queue.all()
    }

    pub(super) fn load(&self, seat: usize) -> Option<&SeatLoad<W, C>> {
        self.seats.get(seat)?.as_ref()
    }
}
