//! Tells whether sources use the signatures that are made for them.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::source::ClientSource;

#[derive(Default)]
pub struct Histories {
    by_source: HashMap<ClientSource, History>,
    /// By the time of the last signature, the oldest first.
    by_age: BTreeSet<(Instant, ClientSource)>,
}

struct History {
    /// A used signature counts 1, an unused one -1.
    balance: i8,
    /// Its last signature.
    at: Instant,
}

/// An older history does not count.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// Limit of a balance, in both directions.
const MOST: i8 = 16;

/// Sources in memory, of some 200 bytes each. If there are more, the one without a signature for longest is dropped.
const REMEMBERED: usize = 16_384;

impl Histories {
    /// Whether a source did not use most of its signatures.
    pub fn is_in_doubt(&self, source: ClientSource, now: Instant) -> bool {
        let history = self.by_source.get(&source);
        history.is_some_and(|history| history.balance < 0 && history.is_recent(now))
    }

    /// Whether a source used more of its signatures than it left unused.
    pub fn is_proven(&self, source: ClientSource, now: Instant) -> bool {
        let history = self.by_source.get(&source);
        history.is_some_and(|history| history.balance > 0 && history.is_recent(now))
    }

    /// A signature was made. It counts as unused until its handshake is completed.
    pub fn made(&mut self, source: ClientSource, now: Instant) {
        self.add(source, -1, now);
    }

    /// A handshake was completed with a signature.
    pub fn completed(&mut self, source: ClientSource, now: Instant) {
        self.add(source, 2, now);
    }

    fn add(&mut self, source: ClientSource, change: i8, now: Instant) {
        let known = self.by_source.get(&source).map(|history| history.at);
        if let Some(at) = known {
            self.by_age.remove(&(at, source));
        } else if self.by_source.len() >= REMEMBERED
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_source.remove(&oldest);
        }
        self.by_age.insert((now, source));
        let new = || History {
            balance: 0,
            at: now,
        };
        let history = self.by_source.entry(source).or_insert_with(new);
        let before = if history.is_recent(now) {
            history.balance
        } else {
            0
        };
        history.balance = (before + change).clamp(-MOST, MOST);
        history.at = now;
    }
}

impl History {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < GOOD_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> ClientSource {
        ClientSource::of(std::net::Ipv4Addr::from(number).into())
    }

    #[test]
    fn a_source_that_uses_half_of_its_signatures_is_not_in_doubt() {
        let (mut histories, now) = (Histories::default(), Instant::now());
        let one = source(1);
        for _ in 0..100 {
            histories.made(one, now);
            assert!(histories.is_in_doubt(one, now));
            histories.completed(one, now);
            histories.made(one, now);
            assert!(!histories.is_in_doubt(one, now));
        }
        histories.made(one, now);
        assert!(histories.is_in_doubt(one, now));
        assert!(!histories.is_in_doubt(source(2), now));
        assert!(!histories.is_in_doubt(one, now + GOOD_FOR));
    }

    #[test]
    fn only_the_oldest_history_is_dropped() {
        let (mut histories, begun) = (Histories::default(), Instant::now());
        let now = |number: u32| begun + Duration::from_micros(number.into());
        let (bad, others) = (source(0), 1..=REMEMBERED as u32);
        histories.made(bad, now(0));
        for number in others.clone() {
            // The bad source goes on; all others have one signature each.
            histories.made(bad, now(number));
            histories.made(source(number), now(number));
            assert!(histories.by_source.len() <= REMEMBERED);
            assert_eq!(histories.by_source.len(), histories.by_age.len());
        }
        let end = now(REMEMBERED as u32);
        assert!(histories.is_in_doubt(bad, end));
        let forgotten: Vec<_> = others
            .filter(|number| !histories.is_in_doubt(source(*number), end))
            .collect();
        assert_eq!(forgotten, [1]);
    }

    #[test]
    fn all_subnets_of_a_source_share_its_history() {
        let (mut histories, now) = (Histories::default(), Instant::now());
        let subnet = |number: u128| {
            let address = 0x2001_0db8 << 96 | number << 64 | 1;
            ClientSource::of(std::net::Ipv6Addr::from(address).into())
        };
        for number in 0..50_000 {
            histories.made(subnet(number), now);
        }
        assert!(histories.is_in_doubt(subnet(60_000), now));
        assert_eq!(histories.by_source.len(), 1);
    }
}
