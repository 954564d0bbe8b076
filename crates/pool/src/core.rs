//! The running pool: what its parts share.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwap;
use hsmux_token::{Error, Kind, Result};

use crate::Options;
use crate::alarm::Alarm;
use crate::catalogue::Catalogue;
use crate::client_session::Affinity;
use crate::clock::{self, Monitor, Mutex};
use crate::direct::DirectConnections;
use crate::job::{Lane, RequestAttempts, ScheduledWork};
use crate::need::{Need, Route};
use crate::proof::{Answers, AwaitedKeys, ProofPermits};
use crate::record::{Record, SeatConnection};
use crate::registry::Registry;
use crate::scheduler::{AdmitError, Scheduler, Term, Ticket};
use crate::seatset::SeatSet;
use crate::session_keys::LargeSessionKeys;
use crate::watcher::MemberWatchers;

/// Locks are taken in this order, and none is held while a token or a caller is called:
/// a seat's life, registry, scheduler, an affinity, a seat's last error.
pub(crate) struct Core {
    pub options: Options,
    pub base: Instant,
    pub scheduler: Mutex<Scheduler<ScheduledWork, Arc<SeatConnection>>>,
    pub registry: Mutex<Registry>,
    pub catalogue: ArcSwap<Catalogue>,
    pub seats: ArcSwap<Vec<Option<Arc<Record>>>>,
    pub alarm: Alarm,
    pub stopping: AtomicBool,
    /// Signalled whenever a seat has settled, gone in or out of service, or become idle.
    pub moved: Monitor<()>,
    /// Limits the proofs that run at once.
    pub proof_permits: ProofPermits,
    /// Keys whose proofs are waited for.
    pub awaited_keys: AwaitedKeys,
    /// Seats that are being connected or proved after that.
    pub busy: AtomicUsize,
    /// Counts client sessions, to number them.
    pub client_sessions: AtomicUsize,
    /// What secret keys have answered.
    pub answers: Answers,
    /// The affinities of all client sessions.
    pub affinities: Mutex<Vec<Weak<Affinity>>>,
    /// Session keys of applications.
    pub large_session_keys: LargeSessionKeys,
    /// Who looks after the members.
    pub watchers: MemberWatchers,
    /// Connections of programs that workers serve themselves.
    pub direct: DirectConnections,
    connections: AtomicU64,
}

/// The lane of a request, or its place in the queue.
pub(crate) enum Acquired {
    Granted(Lane),
    Waiting(Ticket),
}

/// The effect of a new edition of the catalogue on waiting requests.
pub(crate) struct QueueUpdate {
    grants: Vec<(Lane, ScheduledWork)>,
    refused: Vec<(ScheduledWork, Error)>,
}

impl Core {
    pub fn new(options: Options) -> Arc<Self> {
        let mut registry = Registry::new(&options);
        let catalogue = registry.draw(&options);
        let mut scheduler = Scheduler::new(options.policy, options.queue);
        let nobody = scheduler.reroute(catalogue.edition, |_: &ScheduledWork| {
            Ok::<_, Error>(SeatSet::EMPTY)
        });
        debug_assert!(nobody.is_empty());
        Arc::new(Self {
            base: clock::now(),
            scheduler: Mutex::new(scheduler),
            registry: Mutex::new(registry),
            catalogue: ArcSwap::from_pointee(catalogue),
            seats: ArcSwap::default(),
            alarm: Alarm::new(),
            stopping: AtomicBool::new(false),
            moved: Monitor::default(),
            proof_permits: ProofPermits::default(),
            awaited_keys: AwaitedKeys::default(),
            busy: AtomicUsize::new(0),
            client_sessions: AtomicUsize::new(0),
            answers: options
                .answers
                .clone()
                .map_or_else(Answers::default, Answers::of_file),
            affinities: Mutex::default(),
            large_session_keys: LargeSessionKeys::default(),
            watchers: MemberWatchers::default(),
            direct: DirectConnections::default(),
            connections: AtomicU64::new(0),
            options,
        })
    }

    pub fn record(&self, index: usize) -> Option<Arc<Record>> {
        self.seats.load().get(index)?.clone()
    }

    pub fn records(&self) -> Vec<Arc<Record>> {
        self.seats.load().iter().flatten().cloned().collect()
    }

    /// The first seat of a member: all its seats say the same.
    pub fn first_of(&self, member: &str) -> usize {
        let seats = self.seats.load();
        let of_member = |seat: &Option<Arc<Record>>| {
            seat.as_ref()
                .is_some_and(|record| &*record.member == member)
        };
        seats.iter().position(of_member).unwrap_or(seats.len())
    }

    /// A number for a new connection of this seat.
    pub fn generation(&self, index: usize) -> u64 {
        (self.connections.fetch_add(1, Ordering::Relaxed) + 1) << 8 | index as u64
    }

    /// Changes the catalogue, publishes it, and routes anew what waits.
    pub fn publish<T>(self: &Arc<Self>, change: impl FnOnce(&mut Registry) -> T) -> T {
        let (changed, update) = self.edit(change);
        self.carry_out(update);
        self.moved();
        changed
    }

    /// The same for those who hold a lock: they carry out what follows when they have let go of it.
    #[must_use]
    pub fn edit<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> (T, QueueUpdate) {
        let mut registry = self.registry.lock();
        let changed = change(&mut registry);
        let edition = Arc::new(registry.draw(&self.options));
        self.catalogue.store(Arc::clone(&edition));
        // Editions reach the scheduler in their order, so the registry stays locked until then.
        let update = self.reroute(edition.edition);
        (changed, update)
    }

    fn reroute(&self, edition: u64) -> QueueUpdate {
        let now = clock::now();
        let mut scheduler = self.scheduler.lock();
        let refused = scheduler.reroute(edition, |work| {
            work.with(|need, attempt, term| {
                let route = need.route(&self.catalogue.load())?;
                self.seats_for(need, attempt, term, &route)
            })
        });
        QueueUpdate {
            grants: scheduler.fill(now),
            refused,
        }
    }

    pub fn carry_out(self: &Arc<Self>, update: QueueUpdate) {
        self.review_direct();
        self.hand_out(update.grants);
        for (work, error) in update.refused {
            work.fail(error);
        }
    }

    /// A lane now, or a place in the queue for the `work`.
    ///
    /// `running` is kept with the run, for those that are to be told if it ends otherwise.
    pub fn acquire(
        &self,
        need: &Need,
        attempt: &RequestAttempts,
        term: Term,
        running: Option<&ScheduledWork>,
        mut waiting: impl FnMut() -> ScheduledWork,
    ) -> Result<Acquired> {
        loop {
            let catalogue = self.catalogue.load();
            let acquired =
                self.acquire_by(&catalogue, need, attempt, term, running, &mut waiting)?;
            if let Some(acquired) = acquired {
                return Ok(acquired);
            }
            // The thread that changes the catalogue has not reached the scheduler yet.
            clock::give_way();
        }
    }

    /// The same by this catalogue. `None`: it has changed, and a seat that it names may serve by a connection on which
    /// nothing has proved itself yet.
    fn acquire_by(
        &self,
        catalogue: &Catalogue,
        need: &Need,
        attempt: &RequestAttempts,
        term: Term,
        running: Option<&ScheduledWork>,
        waiting: &mut impl FnMut() -> ScheduledWork,
    ) -> Result<Option<Acquired>> {
        let now = clock::now();
        if term.deadline <= now {
            return Err(self.too_late(need, attempt));
        }
        let route = need.route(catalogue)?;
        let of_session = self.large_session_keys.times(need.session_objects());
        let term = Term {
            cost: term.cost.times(route.times.max(of_session)),
            ..term
        };
        let able = route.able.minus(&attempt.tried);
        let mut scheduler = self.scheduler.lock();
        if scheduler.has_later_than(route.edition) {
            return Ok(None);
        }
        if let Some(lane) = scheduler.start(&able, now, term, running) {
            drop(scheduler);
            self.alarm
                .by(now + lane.connection.record.seat.timeout.min(term.deadline - now));
            return Ok(Some(Acquired::Granted(lane)));
        }
        let able = self.seats_for(need, attempt, term, &route)?;
        let displaced = match scheduler.admit(route.edition, term.cost.owner) {
            Err(AdmitError::Stale) => return Ok(None),
            Err(AdmitError::Full(full)) => return Err(full),
            Ok(None) => None,
            Ok(Some(work)) => Some((work, scheduler.full())),
        };
        let ticket = scheduler.enqueue(able, term, waiting());
        drop(scheduler);
        if let Some((work, full)) = displaced {
            work.fail(full);
        }
        if able.is_empty() {
            need.token_objects()
                .for_each(|key| self.awaited_keys.add(key));
        }
        self.alarm.by(term.deadline);
        Ok(Some(Acquired::Waiting(ticket)))
    }

    /// The seats that a request may wait for; refused if none is expected in time.
    fn seats_for(
        &self,
        need: &Need,
        attempt: &RequestAttempts,
        term: Term,
        route: &Route,
    ) -> Result<SeatSet> {
        let able = route.able.minus(&attempt.tried);
        if !able.is_empty() {
            return Ok(able);
        }
        let seats = self.seats.load();
        let in_time = |index: usize| {
            let record = seats.get(index).and_then(Option::as_ref);
            record.is_some_and(|record| record.expected_by(term.deadline, self.base))
        };
        let mut hopeful = route.hopeful.minus(&attempt.tried).iter();
        if attempt.may_wait() && hopeful.any(in_time) {
            return Ok(SeatSet::EMPTY);
        }
        Err(self.exhausted(need, attempt))
    }

    /// Nobody can serve the request, or nobody else.
    pub fn exhausted(&self, need: &Need, attempt: &RequestAttempts) -> Error {
        if let Some(last) = &attempt.last {
            return last.clone().with_scope(hsmux_token::Scope::Pool);
        }
        let mut message = format!("{}: no member that could serve is in service", need.call);
        for record in self.records() {
            if let Some((_, error)) = &*record.last_error.lock() {
                let _ = write!(message, "; {}: {error}", record.name);
            }
        }
        message.push_str("; hsmux status says more of them");
        Error::pool(Kind::NoReplica, message)
    }

    /// The deadline has passed: because all are busy, or because nobody is there.
    pub fn too_late(&self, need: &Need, attempt: &RequestAttempts) -> Error {
        let nobody = need
            .route(&self.catalogue.load())
            .is_ok_and(|route| route.able.minus(&attempt.tried).is_empty());
        if nobody {
            return self.exhausted(need, attempt);
        }
        let message = format!("{}: the deadline has passed", need.call);
        Error::pool(Kind::Deadline, message)
    }
}

#[cfg(test)]
mod tests;
