//! The rule of the scheduler holds for all events in any order.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

impl Capacity {
    /// A worker process of this member.
    pub(super) fn lanes(lanes: usize, member: usize) -> Self {
        Self {
            lanes,
            weight: 1,
            timeout: Duration::from_secs(1),
            member,
            far: true,
            pool: false,
        }
    }
}

/// A signature of a service.
pub(super) const COST: Cost = Cost {
    owner: Owner::Service,
    bytes: 1,
};

/// Requests are numbers here, and connections are the seats' own numbers.
type Machine = Scheduler<usize, usize>;

#[derive(Clone, Debug)]
enum Event {
    Open {
        seat: usize,
        lanes: usize,
        member: usize,
    },
    Close {
        seat: usize,
    },
    Drain {
        seat: usize,
    },
    Arrive {
        able: Vec<usize>,
        deadline_ms: u64,
        uid: u32,
    },
    Finish {
        nth: usize,
        failed: bool,
    },
    Cancel {
        nth: usize,
    },
    Elapse {
        ms: u64,
    },
    Reroute {
        seat: usize,
    },
}

const SEATS: usize = 5;

fn event() -> impl Strategy<Value = Event> {
    let seat = 0..SEATS;
    prop_oneof![
        2 => (seat.clone(), 1..4_usize, 0..2_usize)
            .prop_map(|(seat, lanes, member)| Event::Open { seat, lanes, member }),
        1 => seat.clone().prop_map(|seat| Event::Close { seat }),
        1 => seat.clone().prop_map(|seat| Event::Drain { seat }),
        8 => (prop::collection::vec(seat.clone(), 0..4), 1..5000_u64, 0..3_u32)
            .prop_map(|(able, deadline_ms, uid)| Event::Arrive { able, deadline_ms, uid }),
        6 => (0..20_usize, any::<bool>()).prop_map(|(nth, failed)| Event::Finish { nth, failed }),
        1 => (0..20_usize).prop_map(|nth| Event::Cancel { nth }),
        2 => (0..3000_u64).prop_map(|ms| Event::Elapse { ms }),
        1 => seat.prop_map(|seat| Event::Reroute { seat }),
    ]
}

/// A model of the scheduler's callers, which keep their side of the contract.
struct World {
    machine: Machine,
    now: Instant,
    generation: u64,
    open: HashMap<usize, u64>,
    running: Vec<(RunId, usize)>,
    waiting: Vec<(Ticket, usize, SeatSet)>,
    requests: usize,
    answered: Vec<usize>,
    /// The user of each request.
    owners: HashMap<usize, u32>,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self {
            machine: Scheduler::new(policy, 30),
            now: Instant::now(),
            generation: 0,
            open: HashMap::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            requests: 0,
            answered: Vec::new(),
            owners: HashMap::new(),
        }
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Open {
                seat,
                lanes,
                member,
            } if !self.open.contains_key(&seat) => {
                self.generation += 1;
                self.open.insert(seat, self.generation);
                let capacity = Capacity::lanes(lanes, member);
                self.machine.open(seat, self.generation, seat, capacity);
                self.hand_out(seat);
            }
            Event::Close { seat } => {
                if let Some(generation) = self.open.remove(&seat) {
                    let orphans = self.machine.close(seat, generation).unwrap();
                    self.answered.extend(orphans);
                    self.running
                        .retain(|(run_id, _)| run_id.generation != generation);
                    assert!(self.machine.close(seat, generation).is_none());
                }
            }
            Event::Drain { seat } => {
                if let Some(generation) = self.open.get(&seat) {
                    self.machine.drain(seat, *generation);
                }
            }
            Event::Arrive {
                able,
                deadline_ms,
                uid,
            } => self.arrive(able, deadline_ms, uid),
            Event::Finish { nth, failed } if !self.running.is_empty() => {
                let (run_id, request) = self.running.remove(nth % self.running.len());
                let outcome = if failed {
                    RunOutcome::Failed
                } else {
                    RunOutcome::Served
                };
                let work = self.machine.finish(run_id, self.now, outcome);
                assert!(work.is_none_or(|work| work == request));
                self.answered.extend(work);
                assert_eq!(self.machine.finish(run_id, self.now, outcome), None);
                self.hand_out(run_id.seat);
            }
            Event::Cancel { nth } if !self.waiting.is_empty() => {
                let (ticket, request, _) = self.waiting.remove(nth % self.waiting.len());
                assert_eq!(self.machine.cancel(ticket), Some(request));
                self.answered.push(request);
                assert_eq!(self.machine.cancel(ticket), None);
            }
            Event::Elapse { ms } => self.elapse(ms),
            Event::Reroute { seat } => self.reroute(seat),
            _ => {}
        }
    }

    fn arrive(&mut self, able: Vec<usize>, deadline_ms: u64, uid: u32) {
        let able: SeatSet = able.into_iter().collect();
        let term = Term {
            deadline: self.now + Duration::from_millis(deadline_ms),
            patience: 1,
            cost: Cost {
                owner: Owner::User(uid),
                bytes: 1,
            },
        };
        self.requests += 1;
        let request = self.requests;
        self.owners.insert(request, uid);
        if let Some(grant) = self.machine.start(&able, self.now, term, Some(&request)) {
            assert!(able.contains(grant.connection));
            self.running.push((grant.run_id, request));
            return;
        }
        match self.machine.admit(0, term.cost.owner) {
            Ok(displaced) => {
                if let Some(displaced) = displaced {
                    // The displaced request belongs to a user with the most requests, more than this user has with the
                    // new one.
                    let loser = self.owners[&displaced];
                    assert!(self.waiting_of(loser) > self.waiting_of(uid) + 1);
                    assert!((0..3).all(|other| self.waiting_of(other) <= self.waiting_of(loser)));
                    self.waiting.retain(|(_, waiting, _)| *waiting != displaced);
                    self.answered.push(displaced);
                }
                let ticket = self.machine.enqueue(able, term, request);
                self.waiting.push((ticket, request, able));
            }
            Err(AdmitError::Full(error)) => {
                assert_eq!(error.kind(), hsmux_token::Kind::Busy);
                assert_eq!(self.waiting.len(), 30);
                self.answered.push(request);
            }
            Err(AdmitError::Stale) => unreachable!("the edition never changes here"),
        }
    }

    fn hand_out(&mut self, seat: usize) {
        while let Some((grant, request)) = self.machine.next(seat, self.now) {
            // The granted request is the oldest of its owner that the seat can serve.
            let uid = self.owners[&request];
            let oldest = self
                .waiting
                .iter()
                .filter(|(_, waiting, able)| able.contains(seat) && self.owners[waiting] == uid);
            assert_eq!(oldest.map(|(_, request, _)| *request).min(), Some(request));
            self.start(&grant, request);
        }
    }

    fn waiting_of(&self, uid: u32) -> usize {
        let its = |(_, request, _): &&(Ticket, usize, SeatSet)| self.owners[request] == uid;
        self.waiting.iter().filter(its).count()
    }

    fn start(&mut self, grant: &Grant<usize>, request: usize) {
        self.waiting.retain(|(_, waiting, _)| *waiting != request);
        self.running.push((grant.run_id, request));
    }

    fn elapse(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let due = self
            .machine
            .nearest()
            .is_some_and(|nearest| nearest <= self.now);
        let overdue = self.machine.overdue(self.now);
        let any = !overdue.waiting.is_empty() || !overdue.running.is_empty();
        assert!(due || !any && overdue.hung.is_empty());
        self.waiting
            .retain(|(_, request, _)| !overdue.waiting.contains(request));
        self.answered.extend(overdue.waiting);
        self.answered.extend(overdue.running);
        for (seat, generation) in overdue.hung {
            assert_eq!(self.open[&seat], generation);
            self.play(Event::Close { seat });
        }
        assert!(
            self.machine
                .nearest()
                .is_none_or(|nearest| nearest > self.now)
        );
    }

    /// One more seat can serve everything that waits.
    fn reroute(&mut self, seat: usize) {
        for (_, _, able) in &mut self.waiting {
            able.insert(seat);
        }
        let waiting = &self.waiting;
        let refused = self.machine.reroute(0, |request| {
            let found = waiting.iter().find(|(_, waiting, _)| waiting == request);
            found.map(|(.., able)| *able).ok_or(())
        });
        assert!(refused.is_empty());
        for (grant, request) in self.machine.fill(self.now) {
            self.start(&grant, request);
        }
    }

    fn check(&self) {
        for seat in 0..SEATS {
            let activity = self.machine.activity(seat);
            if let Some(activity) = activity
                && activity.running < activity.lanes
            {
                let overtaken = self.machine.waits_for_one(seat);
                assert!(!overtaken || activity.running > 0, "seat {seat} is stuck");
                let idles = !overtaken && self.machine.queue.has_for(seat);
                assert!(!idles, "seat {seat} idles");
            }
        }
        assert_eq!(self.machine.waiting(), self.waiting.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// No seat has a free lane while a request waits that it can serve, unless a run there was overtaken for too long.
    /// Every request is answered once.
    #[test]
    fn no_seat_idles_while_it_could_serve(
        events in prop::collection::vec(event(), 0..120),
        policy in prop_oneof![
            Just(Policy::LeastLoaded), Just(Policy::RoundRobin), Just(Policy::FirstAvailable)
        ],
    ) {
        let mut world = World::new(policy);
        for event in events {
            world.play(event);
            world.check();
        }
        let mut answered = world.answered.clone();
        answered.sort_unstable();
        answered.dedup();
        prop_assert_eq!(answered.len(), world.answered.len(), "answered twice");
    }
}
