//! Assigns requests to seats: a state machine without threads, clocks or locks of its own.
//!
//! The one rule: no seat has a free lane while a request waits that it can serve. Every change that frees a lane is
//! followed by [`Scheduler::next`], until that answers `None`. There are two exceptions:
//!
//! - An operation that others have overtaken for too long has its seat to itself ([`hang_detector`]).
//! - While several owners have requests, long operations of one owner leave the last lane of a seat to the others.

mod answer_interval;
#[cfg(test)]
mod fair_tests;
mod hang_detector;
#[cfg(test)]
mod hang_detector_tests;
mod key_capacity;
mod load;
mod overdue;
mod queries;
mod queue;
mod selection;
#[cfg(test)]
mod selection_tests;
#[cfg(test)]
mod simulation;
mod spread;
#[cfg(test)]
mod tests;
mod wait_estimate;
#[cfg(test)]
mod wait_estimate_tests;

use std::time::{Duration, Instant};

use hsmux_token::Error;
pub use load::DEEPEST;
use load::SeatLoad;
pub(crate) use load::{Capacity, RunOutcome};
pub(crate) use queue::Ticket;
use queue::{Queue, QueueLine};
pub use spread::Spread;

use crate::Policy;
use crate::owner::{Cost, Owner};
use crate::seatset::SeatSet;

/// An owner that had a request within this time is expected to have another one.
const LATELY: Duration = Duration::from_secs(1);

/// `W` is what waits or runs; `C` is the connection of a seat.
pub(crate) struct Scheduler<W, C> {
    policy: Policy,
    bound: usize,
    seats: Vec<Option<SeatLoad<W, C>>>,
    /// Operations that still run on connections that were replaced.
    leaving: Vec<SeatLoad<W, C>>,
    /// Seats with a free lane.
    free: SeatSet,
    /// Seats without a free lane where requests may wait behind the running ones. Empty while there is more than one
    /// token, because another one could become free sooner.
    ahead: SeatSet,
    queue: Queue<W>,
    /// All seats are of one token.
    alone: bool,
    runs: u64,
    /// The owner of the last request, and its time.
    last: Option<(Owner, Instant)>,
    /// The time of the last request of another owner.
    before: Option<Instant>,
    /// The edition of the catalogue by which the waiting requests were routed.
    edition: u64,
}

/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// At this time the caller is answered, whatever happens.
    pub deadline: Instant,
    /// The longest duration of its operation, in multiples of the seat's time-out.
    pub patience: u32,
    /// Its owner, and its weight in the owner's share.
    pub cost: Cost,
}

impl Term {
    /// True for new keys: tokens need much longer for them than for anything else.
    pub fn is_slow(&self) -> bool {
        self.patience > 1
    }
}

/// A lane of a seat, given to one request.
#[derive(Clone, Debug)]
pub(crate) struct Grant<C> {
    pub run_id: RunId,
    pub connection: C,
    /// When it was given.
    pub since: Instant,
}

/// Identifies a run, to give its lane back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId {
    pub seat: usize,
    pub generation: u64,
    number: u64,
}

/// Why a request does not wait.
#[derive(Debug)]
pub(crate) enum AdmitError {
    /// Too many wait: [`Error::busy`].
    Full(Error),
    /// The catalogue has changed since the request was routed.
    Stale,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    pub fn new(policy: Policy, bound: usize) -> Self {
        Self {
            policy,
            bound,
            seats: Vec::new(),
            leaving: Vec::new(),
            free: SeatSet::EMPTY,
            ahead: SeatSet::EMPTY,
            queue: Queue::new(),
            alone: true,
            runs: 0,
            last: None,
            before: None,
            edition: 0,
        }
    }

    /// A seat comes into service. Call [`Self::next`] afterwards.
    pub fn open(&mut self, seat: usize, generation: u64, connection: C, capacity: Capacity) {
        if self.seats.len() <= seat {
            self.seats.resize_with(seat + 1, || None);
        }
        self.seats[seat] = Some(SeatLoad::new(generation, connection, capacity));
        self.sort_all();
    }

    /// Replaces the connection of a seat. Operations on the old one go on. Call [`Self::next`] afterwards.
    pub fn supersede(&mut self, seat: usize, generation: u64, connection: C, capacity: Capacity) {
        let old = self.seats.get_mut(seat).and_then(Option::take);
        self.leaving
            .extend(old.filter(|load| !load.running.is_empty()));
        self.open(seat, generation, connection, capacity);
    }

    /// True if operations still run on this replaced connection.
    pub fn is_leaving(&self, generation: u64) -> bool {
        self.leaving
            .iter()
            .any(|load| load.generation == generation)
    }

    /// A seat goes out of service. Answers the work that ran there, or `None` if the seat was not there.
    pub fn close(&mut self, seat: usize, generation: u64) -> Option<Vec<W>> {
        let slot = self.seats.get_mut(seat)?;
        let load = match slot.take_if(|load| load.generation == generation) {
            Some(load) => load,
            None => self.take_leaving(generation)?,
        };
        self.sort_all();
        Some(
            load.running
                .into_iter()
                .filter_map(|run| run.work)
                .collect(),
        )
    }

    /// A seat takes no new requests. Its running operations go on.
    pub fn drain(&mut self, seat: usize, generation: u64) {
        if let Some(Some(load)) = self.seats.get_mut(seat)
            && load.generation == generation
        {
            load.drain();
            self.sort(seat);
        }
    }

    /// Grants a lane of one of these seats, chosen by the policy. No waiting request is passed over: a lane is free
    /// only if none of them can use it.
    pub fn start(
        &mut self,
        able: &SeatSet,
        now: Instant,
        term: Term,
        work: Option<&W>,
    ) -> Option<Grant<C>> {
        let mut free = able.and(&self.free);
        let deep = !self.is_mixed(term.cost.owner, now);
        if free.is_empty() && self.queue.len() == 0 && (deep || !term.cost.is_long()) {
            let waits_for_nothing = |seat: &usize| {
                let load = self.seats[*seat].as_ref();
                load.is_some_and(|load| load.takes_ahead(deep) && !load.is_held_up(now))
            };
            let ahead = able.and(&self.ahead);
            free = ahead.iter().filter(waits_for_nothing).collect();
        }
        if term.is_slow() {
            let takes = |seat: &usize| {
                let load = self.load(*seat);
                load.is_some_and(|load| !load.keeps_last_lane_from_new_keys())
            };
            free = free.iter().filter(takes).collect();
        }
        if term.cost.is_long() && !deep {
            let takes = |seat: &usize| {
                let load = self.load(*seat);
                load.is_some_and(|load| !load.keeps_last_lane(term.cost.owner))
            };
            free = free.iter().filter(takes).collect();
        }
        let seat = self.choose(free, now)?;
        self.run(seat, now, term, work.cloned())
    }

    /// Counts an operation that no caller has asked for, in addition to the lanes. `None` if the connection no longer
    /// serves.
    pub fn begin(
        &mut self,
        seat: usize,
        generation: u64,
        now: Instant,
        term: Term,
    ) -> Option<RunId> {
        let load = self.seats.get(seat)?.as_ref();
        load.filter(|load| load.generation == generation)?;
        Some(self.run(seat, now, term, None)?.run_id)
    }

    /// True if the catalogue has changed since this edition. A seat may have another connection now, for which that
    /// edition is wrong.
    pub fn has_later_than(&self, edition: u64) -> bool {
        edition < self.edition
    }

    /// Admits a request to the queue that was routed by this edition of the catalogue. If the queue is full and another
    /// owner has more requests than this one, the newest request of the owner with the most is answered: it has to
    /// leave the queue.
    pub fn admit(&mut self, edition: u64, owner: Owner) -> Result<Option<W>, AdmitError> {
        if edition != self.edition {
            return Err(AdmitError::Stale);
        }
        if self.queue.len() < self.bound || owner == Owner::Pool {
            return Ok(None);
        }
        let displaced = self.queue.displace(owner);
        displaced
            .map(Some)
            .ok_or_else(|| AdmitError::Full(self.full()))
    }

    /// The error for requests that the full queue refuses.
    pub fn full(&self) -> Error {
        Error::busy(self.queue.len(), self.drain_time())
    }

    /// Puts a request in the queue, for a lane of any of these seats.
    pub fn enqueue(&mut self, able: SeatSet, term: Term, work: W) -> Ticket {
        self.queue.push(able, term, work)
    }

    /// Takes the next waiting request that a free lane of this seat can serve: the oldest one of the owner that has had
    /// the least.
    pub fn next(&mut self, seat: usize, now: Instant) -> Option<(Grant<C>, W)> {
        let free = self.free.contains(seat);
        if !free && !self.takes_ahead(seat, now) {
            return None;
        }
        let quick_alone = self
            .load(seat)
            .is_some_and(SeatLoad::keeps_last_lane_from_new_keys);
        let may_run = |line: &QueueLine<W>| !(line.is_slow && quick_alone);
        let (mut at, cost) = self.queue.first(seat, may_run)?;
        if cost.is_long() && self.is_mixed(cost.owner, now) {
            if !free {
                return None;
            }
            let keeps = || {
                self.load(seat)
                    .is_some_and(|load| load.keeps_last_lane(cost.owner))
            };
            let of_another = |line: &QueueLine<W>| line.owner != cost.owner;
            if self.queue.first(seat, of_another).is_none() && keeps() {
                let is_short = |line: &QueueLine<W>| may_run(line) && !line.is_long;
                (at, _) = self.queue.first(seat, is_short)?;
            }
        }
        let waiting = self.queue.pop(at)?;
        let grant = self.run(seat, now, waiting.term, Some(waiting.work.clone()))?;
        Some((grant, waiting.work))
    }

    /// [`Self::next`] for every seat until it answers `None`.
    pub fn fill(&mut self, now: Instant) -> Vec<(Grant<C>, W)> {
        let mut grants = Vec::new();
        for seat in 0..self.seats.len() {
            while self.queue.len() > 0 {
                let Some(grant) = self.next(seat, now) else {
                    break;
                };
                grants.push(grant);
            }
        }
        grants
    }

    /// Gives a lane back. Call [`Self::next`] afterwards. Only the first caller gets the work, so each request is
    /// answered once.
    pub fn finish(&mut self, run_id: RunId, now: Instant, outcome: RunOutcome) -> Option<W> {
        let load = self.seats.get_mut(run_id.seat)?.as_mut();
        let Some(load) = load.filter(|load| load.generation == run_id.generation) else {
            return self.finish_leaving(run_id, now, outcome);
        };
        let work = load.finish(run_id.number, now, outcome);
        self.sort(run_id.seat);
        work
    }

    /// Takes a waiting request out. `None` if it has a lane by now.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<W> {
        self.queue.cancel(ticket)
    }

    /// Takes out all waiting requests for which `unwanted` holds.
    pub fn take_out(&mut self, unwanted: impl Fn(&W) -> bool) -> Vec<W> {
        self.queue.take_out(unwanted)
    }

    /// Routes each waiting request again, after a change of the catalogue. Call [`Self::fill`] afterwards.
    pub fn reroute<E>(
        &mut self,
        edition: u64,
        route: impl FnMut(&W) -> Result<SeatSet, E>,
    ) -> Vec<(W, E)> {
        self.edition = self.edition.max(edition);
        self.queue.reroute(route)
    }

    fn note_owner(&mut self, owner: Owner, now: Instant) {
        if owner == Owner::Pool {
            return;
        }
        if let Some((last, at)) = self.last.replace((owner, now))
            && last != owner
        {
            self.before = Some(at);
        }
    }

    fn run(&mut self, seat: usize, now: Instant, term: Term, work: Option<W>) -> Option<Grant<C>> {
        self.runs += 1;
        self.note_owner(term.cost.owner, now);
        let number = self.runs;
        let load = self.seats.get_mut(seat)?.as_mut()?;
        load.start(number, now, term, work);
        let grant = Grant {
            run_id: RunId {
                seat,
                generation: load.generation,
                number,
            },
            connection: load.connection.clone(),
            since: now,
        };
        self.sort(seat);
        Some(grant)
    }

    /// Updates the sets that a seat belongs to.
    fn sort(&mut self, seat: usize) {
        let load = self.seats[seat].as_ref();
        self.free.set(seat, load.is_some_and(SeatLoad::free));
        let ahead = self.alone && load.is_some_and(|load| load.takes_ahead(true));
        self.ahead.set(seat, ahead);
    }

    fn take_leaving(&mut self, generation: u64) -> Option<SeatLoad<W, C>> {
        let mut leaving = self.leaving.iter();
        let at = leaving.position(|load| load.generation == generation)?;
        Some(self.leaving.swap_remove(at))
    }

    fn finish_leaving(&mut self, run_id: RunId, now: Instant, outcome: RunOutcome) -> Option<W> {
        let mut load = self.take_leaving(run_id.generation)?;
        let work = load.finish(run_id.number, now, outcome);
        self.leaving
            .extend((!load.running.is_empty()).then_some(load));
        work
    }

    /// Updates the sets of all seats, after one has come or gone.
    fn sort_all(&mut self) {
        let mut members = self.seats.iter().flatten().map(|load| load.capacity.member);
        let first = members.next();
        self.alone = members.all(|member| Some(member) == first);
        for seat in 0..self.seats.len() {
            self.sort(seat);
        }
    }
}
