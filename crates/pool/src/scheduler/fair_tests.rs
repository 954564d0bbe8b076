//! Owners share the tokens and the queue, whatever each of them asks for.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// The costs of an owner's requests, and how many of them are outstanding.
#[derive(Clone, Debug)]
struct Demand {
    costs: Vec<u64>,
    at_once: usize,
}

/// A request: its owner and its cost.
type Request = (usize, u64);

/// One token with several lanes. An operation takes a microsecond for each byte.
struct World {
    owner: fn(usize) -> Owner,
    machine: Scheduler<Request, usize>,
    now: Instant,
    demands: Vec<Demand>,
    asked: Vec<usize>,
    /// In the order in which they started.
    started: Vec<Request>,
    running: Vec<(Instant, RunId, Request)>,
}

const MOST_LANES: usize = 4;
const GREATEST: u64 = 1_000_000;

/// Costs from that of a signature to that of a megabyte.
fn costs() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1..100_u64, 4096..GREATEST], 1..20)
}

/// An owner that always has waiting requests.
fn greedy() -> impl Strategy<Value = Demand> {
    let more_than_runs = MOST_LANES * DEEPEST + 1..3 * MOST_LANES * DEEPEST;
    (costs(), more_than_runs).prop_map(|(costs, at_once)| Demand { costs, at_once })
}

impl World {
    fn new(lanes: usize, queue: usize, demands: Vec<Demand>) -> Self {
        Self::of(lanes, queue, demands, |owner| Owner::User(owner as u32))
    }

    fn of(lanes: usize, queue: usize, demands: Vec<Demand>, owner: fn(usize) -> Owner) -> Self {
        let mut machine = Scheduler::new(Policy::LeastLoaded, queue);
        machine.open(0, 1, 0, Capacity::lanes(lanes, 0));
        let mut world = Self {
            owner,
            machine,
            now: Instant::now(),
            asked: vec![0; demands.len()],
            demands,
            started: Vec::new(),
            running: Vec::new(),
        };
        for owner in 0..world.demands.len() {
            (0..world.demands[owner].at_once).for_each(|_| world.ask(owner));
        }
        world
    }

    /// Asks for the owner's next request. If there is no place for it, it is lost.
    fn ask(&mut self, owner: usize) {
        let costs = &self.demands[owner].costs;
        let request = (owner, costs[self.asked[owner] % costs.len()]);
        self.asked[owner] += 1;
        let term = Term {
            deadline: self.now + Duration::from_secs(86_400),
            patience: 1,
            cost: Cost {
                owner: (self.owner)(owner),
                bytes: request.1,
            },
        };
        let able = SeatSet::of(0);
        match self.machine.start(&able, self.now, term, Some(&request)) {
            Some(grant) => self.run(grant.run_id, request),
            None if self.machine.admit(0, term.cost.owner).is_ok() => {
                self.machine.enqueue(able, term, request);
            }
            None => {}
        }
    }

    fn run(&mut self, run_id: RunId, request: Request) {
        let end = self.now + Duration::from_micros(request.1);
        self.running.push((end, run_id, request));
        self.started.push(request);
    }

    /// Ends the operation that ends first; its owner asks for another one.
    fn step(&mut self) {
        let first = self.running.iter().enumerate().min_by_key(|(_, run)| run.0);
        let at = first.map(|(at, _)| at).expect("something runs");
        let (end, run_id, (owner, _)) = self.running.swap_remove(at);
        self.now = end;
        self.machine.finish(run_id, end, RunOutcome::Served);
        while let Some((grant, next)) = self.machine.next(0, end) {
            self.run(grant.run_id, next);
        }
        self.ask(owner);
    }

    fn served(&self, owner: usize) -> u64 {
        let its = self.started.iter().filter(|(of, _)| *of == owner);
        its.map(|(_, cost)| cost).sum()
    }
}

fn user_and_clients(owner: usize) -> Owner {
    match owner {
        0 => Owner::User(0),
        client => Owner::Broker(client as u64),
    }
}

proptest! {
    #[test]
    fn owners_that_always_wait_have_equal_shares(
        lanes in 1..=MOST_LANES,
        demands in prop::collection::vec(greedy(), 2..4),
        steps in 100..1500_usize,
    ) {
        let owners = demands.len();
        let mut world = World::new(lanes, usize::MAX, demands);
        // Operations that began before all owners waited do not count.
        world.started.clear();
        (0..steps).for_each(|_| world.step());
        let served: Vec<_> = (0..owners).map(|owner| world.served(owner)).collect();
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        prop_assert!(most - least <= 5 * GREATEST, "{served:?}");
    }

    /// The first is a user, all others are clients of the broker.
    #[test]
    fn clients_of_the_broker_share_what_one_owner_has(
        lanes in 1..=MOST_LANES,
        demands in prop::collection::vec(greedy(), 3..5),
        steps in 100..1500_usize,
    ) {
        let owners = demands.len();
        let mut world = World::of(lanes, usize::MAX, demands, user_and_clients);
        world.started.clear();
        (0..steps).for_each(|_| world.step());
        let served: Vec<_> = (0..owners).map(|owner| world.served(owner)).collect();
        let all: u64 = served[1..].iter().sum();
        prop_assert!(served[0].abs_diff(all) <= 5 * GREATEST, "{served:?}");
        let (least, most) = (served[1..].iter().min().unwrap(), served[1..].iter().max().unwrap());
        prop_assert!(most - least <= 5 * GREATEST, "{served:?}");
    }

    /// An owner that asks for one small request at a time has a turn after each of the others, however many and large
    /// their requests are.
    #[test]
    fn an_owner_with_one_request_is_not_starved(
        lanes in 1..=MOST_LANES,
        mut demands in prop::collection::vec(greedy(), 1..4),
        steps in 200..1500_usize,
    ) {
        let others = demands.len();
        demands.push(Demand { costs: vec![1], at_once: 1 });
        let mut world = World::new(lanes, usize::MAX, demands);
        world.started.clear();
        (0..steps).for_each(|_| world.step());
        let mut between = 0;
        for (owner, _) in &world.started {
            between = if *owner == others { 0 } else { between + 1 };
            // Each lane may have one behind the one that runs, twice.
            prop_assert!(between <= 4 * lanes + 2 * others, "{between} of others");
        }
    }

    /// With two lanes, an owner does not wait for the end of another owner's long operation.
    #[test]
    fn long_operations_of_one_owner_leave_a_lane_to_another(
        lanes in 2..=MOST_LANES,
        long in 100_000..GREATEST,
        at_once in 10..100_usize,
    ) {
        let demands = vec![
            Demand { costs: vec![long], at_once },
            Demand { costs: vec![1], at_once: 1 },
        ];
        let mut world = World::new(lanes, usize::MAX, demands);
        // The long operations that began before have ended now.
        while world.served(1) < 100 {
            world.step();
        }
        for _ in 0..1000 {
            let before = world.served(1);
            let began = world.now;
            while world.served(1) == before {
                world.step();
            }
            prop_assert!(world.now - began < Duration::from_millis(1));
        }
    }

    #[test]
    fn an_owner_that_fills_the_queue_leaves_places_to_others(
        queue in 2..50_usize,
        fills in 1..200_usize,
    ) {
        let greedy = Demand { costs: vec![1000], at_once: fills };
        let modest = Demand { costs: vec![1000], at_once: 0 };
        let mut world = World::new(1, queue, vec![greedy, modest]);
        let mut lost = 0;
        for _ in 0..queue / 2 {
            let waiting = world.machine.waiting();
            world.ask(1);
            lost += usize::from(world.machine.waiting() == waiting && waiting < queue);
        }
        prop_assert!(world.machine.waiting() <= queue);
        // All of them wait or run.
        let left = world.machine.take_out(|(owner, _)| *owner == 1).len() + lost;
        prop_assert_eq!(left, queue / 2);
    }

    /// A client of the broker that fills the queue leaves places to another one, and all of them leave some to a user.
    #[test]
    fn clients_that_fill_the_queue_leave_places_to_others(
        queue in 4..50_usize,
        fills in 1..200_usize,
    ) {
        let demand = |at_once| Demand { costs: vec![1000], at_once };
        let demands = vec![demand(0), demand(fills), demand(0)];
        let mut world = World::of(1, queue, demands, user_and_clients);
        let share = queue / 4;
        (0..share).for_each(|_| world.ask(2));
        (0..share).for_each(|_| world.ask(0));
        prop_assert!(world.machine.waiting() <= queue);
        let begun = |of: usize| world.started.iter().filter(|(owner, _)| *owner == of).count();
        let begun = [begun(0), begun(2)];
        let mut left = |of: usize| world.machine.take_out(|(owner, _)| *owner == of).len();
        prop_assert_eq!([left(0) + begun[0], left(2) + begun[1]], [share, share]);
    }
}

#[test]
fn a_short_request_has_the_lane_that_a_long_one_of_its_owner_leaves() {
    let now = Instant::now();
    let mut machine: Scheduler<u64, usize> = Scheduler::new(Policy::LeastLoaded, 10);
    machine.open(0, 1, 0, Capacity::lanes(2, 0));
    let seat = SeatSet::of(0);
    let term = |user, bytes| Term {
        deadline: now + Duration::from_secs(60),
        patience: 1,
        cost: Cost {
            owner: Owner::User(user),
            bytes,
        },
    };
    let of_other = machine.start(&seat, now, term(2, 1), None).unwrap();
    machine.start(&seat, now, term(1, 1), None).unwrap();
    machine.enqueue(seat, term(1, GREATEST), GREATEST);
    machine.enqueue(seat, term(1, 1), 1);
    machine.finish(of_other.run_id, now, RunOutcome::Served);
    let next = machine.next(0, now).map(|(_, request)| request);
    assert_eq!(next, Some(1), "it does not wait behind the long one");
    assert!(machine.next(0, now).is_none());
}
