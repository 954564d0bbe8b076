//! What became of the signatures that were made for each source.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::source::ClientSource;

#[derive(Default)]
pub struct Histories(HashMap<ClientSource, History>);

struct History {
    /// Below zero: more of its handshakes were not completed than were.
    balance: i8,
    /// When it last had a signature.
    at: Instant,
}

/// What is older is forgiven.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// How much a source may have in hand, or owe.
const MOST: i8 = 16;

/// A source that is remembered takes some 100 bytes. Past so many the old ones are forgotten, or else all.
const REMEMBERED: usize = 16_384;

impl Histories {
    /// Whether a source used fewer of its signatures than it did not.
    pub fn is_in_doubt(&self, source: ClientSource, now: Instant) -> bool {
        let history = self.0.get(&source);
        history.is_some_and(|history| history.balance < 0 && history.is_recent(now))
    }

    /// A signature was made: until its handshake is completed it counts as unused.
    pub fn made(&mut self, source: ClientSource, now: Instant) {
        self.add(source, -1, now);
    }

    /// A handshake was completed by one.
    pub fn completed(&mut self, source: ClientSource, now: Instant) {
        self.add(source, 2, now);
    }

    fn add(&mut self, source: ClientSource, change: i8, now: Instant) {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&source) {
            self.0.retain(|_, history| history.is_recent(now));
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
        }
        let new = || History {
            balance: 0,
            at: now,
        };
        let history = self.0.entry(source).or_insert_with(new);
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
    fn who_uses_half_of_its_signatures_is_not_in_doubt() {
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
    fn few_sources_are_remembered() {
        let (mut histories, now) = (Histories::default(), Instant::now());
        for number in 0..50_000 {
            histories.made(source(number), now);
            assert!(histories.0.len() <= REMEMBERED);
        }
        assert!(histories.is_in_doubt(source(49_999), now));
    }
}
