//! Who runs where: a state machine without threads, clocks or locks of its own.
//!
//! The one rule: no seat has a free lane while a request waits that it can serve. Every change that
//! frees a lane is followed by [`Scheduler::next`] until that says `None`. Two exceptions: an operation that others
//! overtake for too long ([`hang_detector`]); and while several owners have requests, long operations of one of them do not take
//! all lanes of a seat, or the others' short ones would wait for them.

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
pub use key_capacity::KeyCapacity;
pub use load::DEEPEST;
use load::Load;
pub(crate) use load::{Capacity, Verdict};
use queue::Queue;
pub(crate) use queue::Ticket;
pub use spread::Spread;

use crate::Policy;
use crate::owner::{Cost, Owner};
use crate::seatset::SeatSet;

/// Who had a request within this time is expected to have another one.
const LATELY: Duration = Duration::from_secs(1);

/// `W` is what waits or runs; `C` is the connection of a seat.
pub(crate) struct Scheduler<W, C> {
    policy: Policy,
    bound: usize,
    seats: Vec<Option<Load<W, C>>>,
    /// What still runs on connections in whose place others serve now.
    leaving: Vec<Load<W, C>>,
    /// Seats with a free lane.
    free: SeatSet,
    /// Seats without one where requests may stand behind those that run. Empty while there is more
    /// than one token: another one could become free sooner.
    ahead: SeatSet,
    queue: Queue<W>,
    /// All seats are of one token.
    alone: bool,
    runs: u64,
    /// Whose request ran last, and when.
    last: Option<(Owner, Instant)>,
    /// When somebody else's ran.
    before: Option<Instant>,
    /// Of the catalogue that the waiting requests were routed by.
    edition: u64,
}

/// How long a request is good for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// Past this the caller is answered, whatever happens.
    pub deadline: Instant,
    /// How many times the seat's time-out it may run.
    pub patience: u32,
    /// Whose it is, and what it counts for.
    pub cost: Cost,
}

impl Term {
    /// A new key, for which tokens need much longer than for anything else.
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

/// Names a lane that was given, to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId {
    pub seat: usize,
    pub generation: u64,
    number: u64,
}

/// Why a request does not wait.
#[derive(Debug)]
pub(crate) enum Refused {
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

    /// A seat comes into service. To be followed by [`Self::next`].
    pub fn open(&mut self, seat: usize, generation: u64, connection: C, capacity: Capacity) {
        if self.seats.len() <= seat {
            self.seats.resize_with(seat + 1, || None);
        }
        self.seats[seat] = Some(Load::new(generation, connection, capacity));
        self.sort_all();
    }

    /// Another connection takes the place of the one by which a seat serves; what runs on that one goes
    /// on. To be followed by [`Self::next`].
    pub fn supersede(&mut self, seat: usize, generation: u64, connection: C, capacity: Capacity) {
        let old = self.seats.get_mut(seat).and_then(Option::take);
        self.leaving
            .extend(old.filter(|load| !load.running.is_empty()));
        self.open(seat, generation, connection, capacity);
    }

    /// Whether something still runs on a connection in whose place another one serves.
    pub fn is_leaving(&self, generation: u64) -> bool {
        self.leaving
            .iter()
            .any(|load| load.generation == generation)
    }

    /// While it is held a seat is given nothing, and requests that only it can serve wait. To be followed
    /// by [`Self::next`].
    pub fn hold(&mut self, seat: usize, generation: u64, held: bool) {
        if let Some(Some(load)) = self.seats.get_mut(seat)
            && load.generation == generation
        {
            load.held = held;
            self.sort(seat);
        }
    }

    /// A seat goes out of service; what ran there is handed back. `None` if it was not there.
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

    /// A seat takes no new requests; what runs there goes on.
    pub fn drain(&mut self, seat: usize, generation: u64) {
        if let Some(Some(load)) = self.seats.get_mut(seat)
            && load.generation == generation
        {
            load.drain();
            self.sort(seat);
        }
    }

    /// A lane of one of these seats, chosen by the policy. Nobody who waits is passed over: a lane
    /// is free only if no waiting request can use it.
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

    /// Something runs on a connection that no caller has asked for, beside what the lanes carry; `None` if the
    /// connection no longer serves.
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

    /// Whether the catalogue has changed since this edition: a seat may serve by another connection, on which what that
    /// edition says is not true.
    pub fn has_later_than(&self, edition: u64) -> bool {
        edition < self.edition
    }

    /// Whether a request may wait that was routed by this edition of the catalogue. If the queue is full, the owner
    /// with the most requests in it makes room for one that has fewer: its newest request is answered, and is not to wait.
    pub fn admit(&mut self, edition: u64, owner: Owner) -> Result<Option<W>, Refused> {
        if edition != self.edition {
            return Err(Refused::Stale);
        }
        if self.queue.len() < self.bound || owner == Owner::Pool {
            return Ok(None);
        }
        let displaced = self.queue.displace(owner);
        displaced
            .map(Some)
            .ok_or_else(|| Refused::Full(self.full()))
    }

    /// What is said to those who have no place in the queue.
    pub fn full(&self) -> Error {
        Error::busy(self.queue.len(), self.drain_time())
    }

    /// Puts a request in the queue, for a lane of any of these seats.
    pub fn enqueue(&mut self, able: SeatSet, term: Term, work: W) -> Ticket {
        self.queue.push(able, term, work)
    }

    /// A waiting request that a free lane of this seat can serve: the oldest one of the owner that has had the least.
    pub fn next(&mut self, seat: usize, now: Instant) -> Option<(Grant<C>, W)> {
        let free = self.free.contains(seat);
        if !free && !self.takes_ahead(seat, now) {
            return None;
        }
        let quick_alone = self
            .load(seat)
            .is_some_and(Load::keeps_last_lane_from_new_keys);
        let (at, cost) = self
            .queue
            .first(seat, |_, is_slow| !(is_slow && quick_alone))?;
        if cost.is_long() && self.is_mixed(cost.owner, now) {
            let keeps = || {
                self.load(seat)
                    .is_some_and(|load| load.keeps_last_lane(cost.owner))
            };
            let is_alone = || {
                self.queue
                    .first(seat, |owner, _| owner != cost.owner)
                    .is_none()
            };
            if !free || is_alone() && keeps() {
                return None;
            }
        }
        let waiting = self.queue.pop(at)?;
        let grant = self.run(seat, now, waiting.term, Some(waiting.work.clone()))?;
        Some((grant, waiting.work))
    }

    /// [`Self::next`] for every seat until there is none.
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

    /// Gives a lane back; to be followed by [`Self::next`]. The work is handed over to whoever
    /// gives the lane back first, so that a request is answered once.
    pub fn finish(&mut self, run_id: RunId, now: Instant, verdict: Verdict) -> Option<W> {
        let load = self.seats.get_mut(run_id.seat)?.as_mut();
        let Some(load) = load.filter(|load| load.generation == run_id.generation) else {
            return self.finish_leaving(run_id, now, verdict);
        };
        let work = load.finish(run_id.number, now, verdict);
        self.sort(run_id.seat);
        work
    }

    /// Takes a waiting request out; `None` if it has been granted a lane meanwhile.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<W> {
        self.queue.cancel(ticket)
    }

    /// Takes all waiting requests out that are so.
    pub fn take_out(&mut self, unwanted: impl Fn(&W) -> bool) -> Vec<W> {
        self.queue.take_out(unwanted)
    }

    /// The catalogue has changed: asks anew for each waiting request. To be followed by [`Self::fill`].
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

    /// Puts a seat where it belongs by what it does now.
    fn sort(&mut self, seat: usize) {
        let load = self.seats[seat].as_ref();
        self.free.set(seat, load.is_some_and(Load::free));
        let ahead = self.alone && load.is_some_and(|load| load.takes_ahead(true));
        self.ahead.set(seat, ahead);
    }

    fn take_leaving(&mut self, generation: u64) -> Option<Load<W, C>> {
        let mut leaving = self.leaving.iter();
        let at = leaving.position(|load| load.generation == generation)?;
        Some(self.leaving.swap_remove(at))
    }

    fn finish_leaving(&mut self, run_id: RunId, now: Instant, verdict: Verdict) -> Option<W> {
        let mut load = self.take_leaving(run_id.generation)?;
        let work = load.finish(run_id.number, now, verdict);
        self.leaving
            .extend((!load.running.is_empty()).then_some(load));
        work
    }

    /// The same for all, when one has come or gone.
    fn sort_all(&mut self) {
        let mut members = self.seats.iter().flatten().map(|load| load.capacity.member);
        let first = members.next();
        self.alone = members.all(|member| Some(member) == first);
        for seat in 0..self.seats.len() {
            self.sort(seat);
        }
    }
}
