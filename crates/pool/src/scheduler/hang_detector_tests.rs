//! Seats that are found to hang, and operations that only wait behind others.

use std::time::{Duration, Instant};

use super::tests::COST;
use super::*;

/// A seat with four lanes and a time-out of a second, in virtual time.
struct Seat {
    machine: Scheduler<usize, usize>,
    begin: Instant,
    now: Instant,
    running: Vec<RunId>,
}

impl Scheduler<usize, usize> {
    /// True if the seat gets nothing until one of its operations is answered.
    pub(super) fn waits_for_one(&self, seat: usize) -> bool {
        let load = self.seats[seat].as_ref();
        load.is_some_and(|load| load.answers.one_is_waited_for())
    }
}

impl Seat {
    fn new(pool: bool) -> Self {
        let mut machine = Scheduler::new(Policy::LeastLoaded, usize::MAX);
        let capacity = Capacity {
            pool,
            ..Capacity::lanes(4, 0)
        };
        machine.open(0, 1, 0, capacity);
        let now = Instant::now();
        Self {
            machine,
            begin: now,
            now,
            running: Vec::new(),
        }
    }

    /// Gives it as many operations as it takes. Answers their number.
    fn fill(&mut self, patience: u32) -> usize {
        let term = Term {
            deadline: self.now + Duration::from_secs(3600),
            patience,
            cost: COST,
        };
        let before = self.running.len();
        while let Some(grant) = self
            .machine
            .start(&SeatSet::of(0), self.now, term, Some(&0))
        {
            self.running.push(grant.run_id);
        }
        self.running.len() - before
    }

    /// Answers the nth running operation after this time.
    fn answers(&mut self, nth: usize, after: Duration) {
        self.now += after;
        assert!(self.machine.overdue(self.now).hung.is_empty());
        let run_id = self.running.remove(nth);
        self.machine.finish(run_id, self.now, RunOutcome::Served);
    }

    /// The time after which it is found to hang, if it answers nothing more.
    fn hangs_after(&mut self) -> Duration {
        while self.machine.overdue(self.now).hung.is_empty() {
            self.now = self.machine.nearest().expect("something runs");
            assert!(self.now < self.begin + Duration::from_secs(1000));
        }
        self.now - self.begin
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn who_stands_behind_others_does_not_hang() {
    let mut seat = Seat::new(false);
    // One after the other, as a card does it: the last of four waits for 2.4 seconds.
    for _ in 0..10 {
        seat.fill(1);
        seat.answers(0, ms(600));
    }
    assert_eq!(seat.fill(1), 1, "none was overtaken");
    assert_eq!(
        seat.hangs_after(),
        ms(7250),
        "a second after the last answer, and a second look"
    );
}

#[test]
fn nothing_hangs_behind_what_may_take_long() {
    let mut seat = Seat::new(false);
    assert_eq!(seat.fill(10), 3);
    assert_eq!(seat.fill(1), 1);
    seat.answers(0, ms(9000));
    seat.answers(0, ms(9000));
    seat.answers(0, ms(9000));
    assert_eq!(seat.hangs_after(), ms(28_250), "the short one");
}

#[test]
fn who_is_overtaken_for_long_has_the_token_to_itself() {
    let mut seat = Seat::new(false);
    // The second is never served while there is another.
    seat.fill(1);
    let mut overtaken = 0;
    while seat.running.len() > 1 {
        seat.answers(1, ms(100));
        overtaken += seat.fill(1);
    }
    assert_eq!(seat.now - seat.begin, ms(700));
    assert_eq!(overtaken, 4);
    seat.answers(0, ms(900));
    assert_eq!(seat.fill(1), 4, "it is given as much as before");
}

#[test]
fn new_keys_leave_a_lane_and_are_given_all_of_their_time() {
    let mut seat = Seat::new(false);
    assert_eq!(seat.fill(10), 3, "the last lane is kept");
    // The free lane serves shorter operations, however long the new keys take.
    while seat.now - seat.begin < ms(10_000) {
        assert_eq!(seat.fill(1), 1);
        seat.answers(3, ms(100));
    }
    assert_eq!(seat.fill(1), 0, "those that are overdue are waited for");
    assert!(seat.machine.waits_for_one(0));
}

#[test]
fn a_new_key_that_waits_for_a_lane_holds_nobody_up() {
    let mut seat = Seat::new(false);
    let first = seat.fill(10);
    let able = SeatSet::of(0);
    let term = |patience| Term {
        deadline: seat.now + Duration::from_secs(3600),
        patience,
        cost: COST,
    };
    let (new_key, signature) = (term(10), term(1));
    seat.machine.enqueue(able, new_key, 1);
    seat.machine.enqueue(able, signature, 2);
    let (grant, work) = seat.machine.next(0, seat.now).expect("a free lane");
    assert_eq!(work, 2);
    assert!(seat.machine.next(0, seat.now).is_none());
    seat.machine
        .finish(grant.run_id, seat.now, RunOutcome::Served);
    assert!(seat.machine.next(0, seat.now).is_none());
    let run_id = seat.running.remove(first - 1);
    seat.machine.finish(run_id, seat.now, RunOutcome::Served);
    let (_, work) = seat.machine.next(0, seat.now).expect("a lane for it");
    assert_eq!(work, 1);
}

#[test]
fn one_that_hangs_among_others_is_found() {
    let mut seat = Seat::new(false);
    seat.fill(1);
    while seat.running.len() > 1 {
        seat.answers(1, ms(100));
        seat.fill(1);
    }
    assert_eq!(seat.hangs_after(), ms(1950));
}

#[test]
fn another_host_may_serve_some_long_before_others() {
    let mut seat = Seat::new(true);
    seat.fill(1);
    for _ in 0..100 {
        seat.answers(1, ms(100));
        assert_eq!(seat.fill(1), 1);
    }
    assert_eq!(seat.hangs_after(), ms(11_250));
}

#[test]
fn what_was_answered_while_this_process_stood_still_is_read_first() {
    let mut seat = Seat::new(false);
    seat.fill(1);
    seat.now += ms(60_000);
    assert!(seat.machine.overdue(seat.now).hung.is_empty());
    let rest = seat.machine.nearest().expect("something runs") - seat.now;
    assert!(rest < ms(1000), "{rest:?}");
    seat.answers(0, rest / 2);
    seat.answers(0, ms(900));
    assert_eq!(
        seat.hangs_after(),
        ms(60_000) + rest / 2 + ms(900) + ms(1250)
    );
}
