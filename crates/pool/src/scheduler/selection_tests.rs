//! Which seat is selected, and which requests wait behind others at a worker.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::tests::COST;
use super::*;

/// Requests are numbers here, and connections are the seats' own numbers.
type Machine = Scheduler<usize, usize>;

#[test]
fn round_robin_goes_by_weight() {
    let mut machine: Machine = Scheduler::new(Policy::RoundRobin, 10);
    for (seat, weight) in [(0, 1), (1, 3)] {
        let capacity = Capacity {
            weight,
            ..Capacity::lanes(1, seat)
        };
        machine.open(seat, seat as u64 + 1, seat, capacity);
    }
    let mut served = [0; 2];
    let now = Instant::now();
    let term = Term {
        deadline: now + Duration::from_secs(9),
        patience: 1,
        cost: COST,
    };
    for _ in 0..40 {
        let both = [0, 1].into_iter().collect();
        let grant = machine.start(&both, now, term, None).unwrap();
        served[grant.run_id.seat] += 1;
        machine.finish(grant.run_id, now, RunOutcome::Served);
    }
    assert_eq!(served, [10, 30]);
}

#[test]
fn the_least_loaded_is_the_faster_one_until_it_has_more_to_do() {
    let mut machine: Machine = Scheduler::new(Policy::LeastLoaded, 10);
    let now = Instant::now();
    let term = Term {
        deadline: now + Duration::from_secs(9),
        patience: 1,
        cost: COST,
    };
    for (seat, ms) in [(0, 20), (1, 5)] {
        machine.open(seat, seat as u64 + 1, seat, Capacity::lanes(8, seat));
        let grant = machine.start(&SeatSet::of(seat), now, term, None).unwrap();
        machine.finish(
            grant.run_id,
            now + Duration::from_millis(ms),
            RunOutcome::Served,
        );
    }
    let both = [0, 1].into_iter().collect();
    let mut chosen = || machine.start(&both, now, term, None).unwrap().run_id.seat;
    let seats: Vec<_> = (0..5).map(|_| chosen()).collect();
    assert_eq!(seats, [1, 1, 1, 0, 1]);
}

/// Two workers. An operation has taken so long on each.
fn two_workers(members: [usize; 2], micros: u64) -> (Machine, Instant, Term) {
    let mut machine: Machine = Scheduler::new(Policy::LeastLoaded, 10);
    let begin = Instant::now();
    let now = begin + Duration::from_micros(micros);
    let term = Term {
        deadline: now + Duration::from_secs(9),
        patience: 1,
        cost: COST,
    };
    for seat in [0, 1] {
        machine.open(
            seat,
            seat as u64 + 1,
            seat,
            Capacity::lanes(1, members[seat]),
        );
        let grant = machine.start(&SeatSet::of(seat), begin, term, None);
        machine.finish(grant.unwrap().run_id, now, RunOutcome::Served);
    }
    (machine, now, term)
}

#[test]
fn the_worker_that_ran_last_runs_again() {
    let both = [0, 1].into_iter().collect();
    for last in [0, 1, 0] {
        let (mut machine, now, term) = two_workers([7, 7], 100);
        let warm = machine.start(&SeatSet::of(last), now, term, None).unwrap();
        let later = now + Duration::from_micros(150);
        machine.finish(warm.run_id, later, RunOutcome::Served);
        let next = machine.start(&both, later, term, None).unwrap();
        assert_eq!(next.run_id.seat, last);
    }
}

#[test]
fn requests_stand_behind_others_where_no_other_token_could_run_them() {
    let both = [0, 1].into_iter().collect();
    for (members, micros, each) in [
        // The last of them waits for half a millisecond.
        ([7, 7], 100, 5),
        ([7, 7], 5, DEEPEST),
        // A slow token: the way to it does not matter.
        ([7, 7], 5000, 1),
        // Two tokens: the other one may be free sooner.
        ([7, 8], 100, 1),
    ] {
        let (mut machine, now, term) = two_workers(members, micros);
        let start = || Some(machine.start(&both, now, term, None)?.run_id.seat);
        let seats: Vec<_> = std::iter::from_fn(start).collect();
        assert_eq!(seats.len(), 2 * each, "{members:?}, {micros} us");
        for pair in seats.chunks(2) {
            assert_ne!(pair[0], pair[1], "free ones first, then evenly");
        }
    }
}

#[test]
fn nobody_stands_behind_what_takes_too_long() {
    let (mut machine, now, term) = two_workers([7, 7], 100);
    let both = [0, 1].into_iter().collect();
    let mut start = |at| Some(machine.start(&both, at, term, None)?.run_id.seat);
    let held_up = start(now).unwrap();
    let later = now + Duration::from_millis(5);
    let other = start(later).unwrap();
    assert_ne!(held_up, other);
    for _ in 1..5 {
        assert_eq!(start(later), Some(other));
    }
    assert_eq!(start(later), None);
}

#[test]
fn nobody_stands_behind_the_making_of_a_key() {
    let (mut machine, now, term) = two_workers([7, 7], 100);
    let both = [0, 1].into_iter().collect();
    let slow = Term {
        patience: 10,
        cost: COST,
        ..term
    };
    let busy = machine.start(&both, now, slow, None).unwrap().run_id.seat;
    let other = machine.start(&both, now, term, None).unwrap().run_id.seat;
    assert_ne!(busy, other);
    for _ in 1..5 {
        let behind = machine.start(&both, now, term, None).unwrap();
        assert_eq!(behind.run_id.seat, other);
    }
    assert!(machine.start(&both, now, term, None).is_none());
}

#[test]
fn standing_behind_another_is_no_part_of_the_latency() {
    let (mut machine, now, term) = two_workers([7, 7], 100);
    let seat = SeatSet::of(0);
    let first = machine.start(&seat, now, term, None).unwrap();
    let second = machine.start(&seat, now, term, None).unwrap();
    for (grant, micros) in [(first, 100), (second, 200)] {
        let end = now + Duration::from_micros(micros);
        machine.finish(grant.run_id, end, RunOutcome::Served);
    }
    let latency = machine.activity(0).unwrap().latency;
    assert!(latency <= Duration::from_micros(100), "{latency:?}");
}

#[test]
fn who_was_slow_once_is_asked_again_soon_and_who_has_failed_is_not() {
    let both = [0, 1].into_iter().collect();
    for (outcome, asked) in [(RunOutcome::Served, true), (RunOutcome::Failed, false)] {
        let (mut machine, mut now, term) = two_workers([7, 8], 100);
        let begun = machine.start(&SeatSet::of(0), now, term, None).unwrap();
        now += Duration::from_millis(12);
        machine.finish(begun.run_id, now, outcome);
        let mut chosen = BTreeSet::new();
        for _ in 0..10_000 {
            let grant = machine.start(&both, now, term, None).unwrap();
            now += Duration::from_micros(100);
            machine.finish(grant.run_id, now, RunOutcome::Served);
            chosen.insert(grant.run_id.seat);
        }
        assert_eq!(chosen.contains(&0), asked);
    }
}

/// One more operation on each of the two.
fn once_more(machine: &mut Machine, now: Instant, term: Term, micros: u64) {
    for seat in [0, 1] {
        let grant = machine.start(&SeatSet::of(seat), now, term, None).unwrap();
        let end = now + Duration::from_micros(micros);
        machine.finish(grant.run_id, end, RunOutcome::Served);
    }
}

#[test]
fn a_token_is_short_by_any_of_its_workers() {
    let (mut machine, now, term) = two_workers([7, 8], 100);
    once_more(&mut machine, now, term, 100);
    machine.open(2, 3, 2, Capacity::lanes(1, 7));
    machine.open(3, 4, 3, Capacity::lanes(1, 9));
    let known: Vec<_> = (0..5).map(|seat| machine.is_of_short_token(seat)).collect();
    assert_eq!(known, [true, true, true, false, false]);
    assert!(machine.is_short(0) && !machine.is_short(2));
    let (mut machine, now, term) = two_workers([7, 8], 2000);
    once_more(&mut machine, now, term, 2000);
    assert!(!machine.is_of_short_token(0));
}
