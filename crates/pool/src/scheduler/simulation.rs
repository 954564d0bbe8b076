//! Rates in virtual time: what the pool delivers must not depend on the machine that tests it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::tests::COST;
use super::*;

/// Callers over members with these service times. Each caller asks again as soon as it is answered.
struct Simulation<'a> {
    machine: Scheduler<usize, usize>,
    able: SeatSet,
    members: &'a [u64],
    ends: BinaryHeap<Reverse<(Instant, usize)>>,
    given: Vec<RunId>,
}

impl<'a> Simulation<'a> {
    fn new(policy: Policy, members: &'a [u64]) -> Self {
        let mut machine = Scheduler::new(policy, usize::MAX);
        for seat in 0..members.len() {
            machine.open(seat, 1, seat, Capacity::lanes(1, seat));
        }
        Self {
            machine,
            able: (0..members.len()).collect(),
            members,
            ends: BinaryHeap::new(),
            given: Vec::new(),
        }
    }

    fn ask(&mut self, now: Instant) {
        let term = Term {
            deadline: now + Duration::from_secs(3600),
            patience: 1,
            cost: COST,
        };
        match self.machine.start(&self.able, now, term, Some(&0)) {
            Some(grant) => self.run(&grant, now),
            None => {
                self.machine.enqueue(self.able, term, 0);
            }
        }
    }

    fn run(&mut self, grant: &Grant<usize>, now: Instant) {
        let end = now + Duration::from_millis(self.members[grant.connection]);
        self.ends.push(Reverse((end, self.given.len())));
        self.given.push(grant.run_id);
    }

    /// Requests served in ten seconds.
    fn served(mut self, callers: usize) -> f64 {
        let begin = Instant::now();
        for _ in 0..callers {
            self.ask(begin);
        }
        let mut count = 0;
        while let Some(Reverse((now, at))) = self.ends.pop() {
            if now > begin + Duration::from_secs(10) {
                break;
            }
            count += 1;
            let run_id = self.given[at];
            self.machine.finish(run_id, now, RunOutcome::Served);
            if let Some((grant, _)) = self.machine.next(run_id.seat, now) {
                self.run(&grant, now);
            }
            self.ask(now);
        }
        f64::from(count)
    }
}

#[test]
fn members_reach_the_sum_of_their_rates() {
    for policy in [
        Policy::LeastLoaded,
        Policy::RoundRobin,
        Policy::FirstAvailable,
    ] {
        for callers in [2, 16, 128] {
            let served = Simulation::new(policy, &[5, 20]).served(callers);
            assert!(
                served >= 0.99 * 2500.0,
                "{policy:?}, {callers} callers: {served} of 2500"
            );
        }
        let served = Simulation::new(policy, &[5; 64]).served(128);
        assert!(
            served >= 0.99 * 64.0 * 2000.0,
            "{policy:?}: {served} of 128000"
        );
    }
}
