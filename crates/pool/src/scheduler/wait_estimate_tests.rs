//! Requests that are refused because they would wait too long, in virtual time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::tests::COST;
use super::*;

/// A seat with four lanes, a card that does one thing at a time, and its clients.
struct Card {
    /// A request is the moment at which it came.
    machine: Scheduler<Instant, usize>,
    now: Instant,
    service: Duration,
    /// The operations at the card, each with its end.
    running: VecDeque<(RunId, Instant)>,
    /// The times of the served requests.
    took: Vec<Duration>,
    refused: usize,
}

const PATIENCE: Duration = Duration::from_secs(1);
const OTHER: usize = 1;

impl Card {
    fn new(service: Duration) -> Self {
        let mut machine = Scheduler::new(Policy::LeastLoaded, usize::MAX);
        machine.open(0, 1, 0, Capacity::lanes(4, 0));
        Self {
            machine,
            now: Instant::now(),
            service,
            running: VecDeque::new(),
            took: Vec::new(),
            refused: 0,
        }
    }

    /// A card that has shown its speed and was idle afterwards.
    fn known(service: Duration) -> Self {
        let mut card = Self::new(service);
        card.burst(5, Duration::ZERO);
        card.pass(service * 10);
        (card.took, card.refused) = (Vec::new(), 0);
        card
    }

    fn wait_estimate(&self) -> Option<Duration> {
        self.machine.wait_estimate(&SeatSet::of(0), 0, self.now)
    }

    /// Asks as the gateway does. An eighth of the time is a margin for what cannot be estimated.
    fn arrive(&mut self) {
        if self
            .wait_estimate()
            .is_some_and(|wait| wait > PATIENCE * 7 / 8)
        {
            self.refused += 1;
            return;
        }
        let term = Term {
            deadline: self.now + PATIENCE,
            patience: 1,
            cost: COST,
        };
        let able = SeatSet::of(0);
        match self.machine.start(&able, self.now, term, Some(&self.now)) {
            Some(grant) => self.run(&grant),
            None => {
                self.machine.enqueue(able, term, self.now);
            }
        }
    }

    fn run(&mut self, grant: &Grant<usize>) {
        let free = self.running.back().map_or(self.now, |(_, end)| *end);
        self.running.push_back((grant.run_id, free + self.service));
    }

    fn burst(&mut self, count: usize, apart: Duration) {
        for _ in 0..count {
            self.arrive();
            self.pass(apart);
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some((run_id, end)) = self.running.front().copied()
            && end <= until
        {
            self.running.pop_front();
            self.now = end;
            let came = self.machine.finish(run_id, end, RunOutcome::Served);
            self.took.extend(came.map(|came| end - came));
            while let Some((grant, _)) = self.machine.next(0, end) {
                self.run(&grant);
            }
        }
        self.now = until;
    }

    fn longest(&self) -> Duration {
        self.took.iter().max().copied().unwrap_or_default()
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn of_a_burst_those_are_refused_at_once_who_would_be_served_too_late() {
    let mut card = Card::known(ms(100));
    card.burst(60, ms(1));
    let refused = card.refused;
    card.pass(ms(5000));
    assert_eq!(card.took.len() + refused, 60);
    assert!((8..=10).contains(&card.took.len()), "{refused} refused");
    assert!(card.longest() <= PATIENCE, "{:?}", card.longest());
}

/// Without refusals a card would work only for clients that have already gone.
#[test]
fn a_card_that_is_asked_for_too_much_serves_all_that_it_can_and_in_time() {
    let mut card = Card::known(ms(100));
    card.burst(2000, ms(20));
    assert!(card.took.len() >= 398, "{} of 400", card.took.len());
    assert!(card.longest() <= PATIENCE, "{:?}", card.longest());
}

#[test]
fn nobody_is_refused_by_a_card_that_nobody_knows() {
    let mut card = Card::new(ms(100));
    card.burst(60, ms(1));
    assert_eq!((card.refused, card.wait_estimate()), (0, None));
    // While a card never had all lanes taken, the number of operations that it does at once is unknown.
    let mut card = Card::new(ms(5000));
    for _ in 0..3 {
        card.arrive();
        card.pass(ms(6000));
    }
    card.burst(60, ms(1));
    assert_eq!(card.refused, 0);
}

#[test]
fn nobody_is_refused_while_nobody_waits() {
    let mut card = Card::known(ms(5000));
    card.burst(5, ms(1));
    assert_eq!(card.refused, 0);
    card.burst(1, ms(1));
    assert_eq!(card.refused, 1);
}

#[test]
fn what_was_seen_long_ago_refuses_nobody() {
    let mut card = Card::known(ms(100));
    card.pass(answer_interval::GOOD_FOR);
    card.burst(60, ms(1));
    assert_eq!(card.refused, 0);
}

#[test]
fn a_card_that_has_become_faster_is_believed_soon() {
    let mut card = Card::known(ms(2000));
    card.service = ms(10);
    card.burst(100, ms(10));
    card.refused = 0;
    card.burst(20, Duration::ZERO);
    assert_eq!(card.refused, 0);
}

/// The speed of a card that has come back is unknown.
#[test]
fn another_token_is_believed_to_be_fast() {
    let mut card = Card::known(ms(100));
    card.burst(60, ms(1));
    assert!(
        card.wait_estimate() > Some(ms(800)),
        "{:?}",
        card.wait_estimate()
    );
    let both = [0, OTHER].into_iter().collect();
    let lanes = Capacity::lanes(1, OTHER);
    card.machine.open(OTHER, 2, OTHER, lanes);
    assert_eq!(card.machine.wait_estimate(&both, 0, card.now), None);
}

/// Requests for another token do not count, and neither do those that it could serve as well.
#[test]
fn those_alone_are_counted_who_wait_for_the_same_tokens() {
    let mut card = Card::known(ms(100));
    card.burst(6, Duration::ZERO);
    let before = card.wait_estimate();
    assert!(before.is_some());
    let term = Term {
        deadline: card.now + PATIENCE,
        patience: 1,
        cost: COST,
    };
    let both = [0, OTHER].into_iter().collect();
    for others in [SeatSet::EMPTY, SeatSet::of(OTHER), both] {
        card.machine.enqueue(others, term, card.now);
    }
    assert_eq!(card.wait_estimate(), before);
}

/// A request for two tokens gets the free one, even if many wait for the other.
#[test]
fn a_token_that_is_free_is_seen_behind_a_queue_for_another() {
    let mut card = Card::known(ms(100));
    let lanes = Capacity::lanes(1, OTHER);
    card.machine.open(OTHER, 2, OTHER, lanes);
    let term = Term {
        deadline: card.now + PATIENCE * 100,
        patience: 1,
        cost: COST,
    };
    let alone = card
        .machine
        .start(&SeatSet::of(OTHER), card.now, term, None);
    card.now += ms(100);
    card.machine
        .finish(alone.unwrap().run_id, card.now, RunOutcome::Served);
    for _ in 0..100 {
        card.machine.enqueue(SeatSet::of(0), term, card.now);
    }
    let both = [0, OTHER].into_iter().collect();
    let wait_estimate = card.machine.wait_estimate(&both, 0, card.now);
    assert!(
        wait_estimate.is_some_and(|wait| wait <= ms(101)),
        "{wait_estimate:?}"
    );
    assert!(
        card.wait_estimate() > Some(PATIENCE),
        "{:?}",
        card.wait_estimate()
    );
}

/// They are gone at their deadlines.
#[test]
fn those_who_wait_for_a_moment_only_keep_nobody_away_for_longer() {
    let mut card = Card::known(ms(100));
    let term = Term {
        deadline: card.now + ms(300),
        patience: 1,
        cost: COST,
    };
    for _ in 0..100 {
        card.machine.enqueue(SeatSet::of(0), term, card.now);
    }
    let wait_estimate = card.wait_estimate();
    assert!(
        wait_estimate.is_some_and(|wait| wait <= ms(401)),
        "{wait_estimate:?}"
    );
}

#[test]
fn without_a_seat_in_service_the_wait_is_unknown() {
    let card = Card::known(ms(10));
    let none = card.machine.wait_estimate(&SeatSet::EMPTY, 3, card.now);
    assert_eq!(none, None);
    let estimate = card.machine.estimate(&SeatSet::EMPTY, card.now);
    assert_eq!(estimate.times, None);
}
