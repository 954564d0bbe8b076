//! Delays logins after wrong PINs, longer with each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result};

/// The number of wrong PINs without a delay: people mistype.
const FREE: u32 = 3;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// After this time without another wrong PIN, all of them are forgotten.
const FORGET: Duration = Duration::from_secs(15 * 60);

/// Wrong PINs, counted by user. Counting by connection would be useless: a new connection costs nothing.
#[derive(Default)]
pub struct Throttle(HashMap<u32, UserTries>);

struct UserTries {
    wrong: u32,
    last: Instant,
}

impl UserTries {
    fn until(&self) -> Instant {
        let doubled = 1_u32 << self.wrong.saturating_sub(FREE).min(16);
        match self.wrong {
            0..FREE => self.last,
            _ => self.last + (FIRST * doubled).min(LONGEST),
        }
    }
}

impl Throttle {
    /// Admits a try of this user, before any PIN is checked.
    pub fn admit(&mut self, account: u32, now: Instant) -> Result<()> {
        self.0
            .retain(|_, record| now.duration_since(record.last) < FORGET);
        let Some(record) = self.0.get(&account) else {
            return Ok(());
        };
        let wait = record.until().saturating_duration_since(now);
        if wait.is_zero() {
            return Ok(());
        }
        let message = format!(
            "{} wrong PINs in a row: the next is looked at in {} s",
            record.wrong,
            wait.as_secs() + 1
        );
        Err(Error::request(Kind::PinThrottled, message))
    }

    /// A PIN was right or wrong.
    pub fn record(&mut self, account: u32, right: bool, now: Instant) {
        if right {
            self.0.remove(&account);
            return;
        }
        let record = self.0.entry(account).or_insert(UserTries {
            wrong: 0,
            last: now,
        });
        record.wrong = record.wrong.saturating_add(1);
        record.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_pin_doubles_the_wait_of_that_user() {
        let mut throttle = Throttle::default();
        let mut now = Instant::now();
        for _ in 0..FREE {
            throttle.admit(7, now).unwrap();
            throttle.record(7, false, now);
        }
        let mut wait = FIRST;
        for _ in 0..10 {
            let early = now + wait.checked_sub(Duration::from_millis(1)).unwrap();
            let error = throttle.admit(7, early).unwrap_err();
            assert_eq!(error.kind(), Kind::PinThrottled);
            now += wait;
            throttle.admit(7, now).unwrap();
            throttle.record(7, false, now);
            wait = (wait * 2).min(LONGEST);
        }
        throttle.admit(8, now).unwrap();
        throttle.record(7, true, now);
        throttle.admit(7, now).unwrap();
    }

    #[test]
    fn it_is_forgotten_in_the_end() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..20 {
            throttle.record(7, false, now);
        }
        throttle.admit(7, now + FORGET).unwrap();
        assert!(throttle.0.is_empty());
    }
}
