//! How often workers may be replaced: enough for every change of keys that makes them slow, and never a
//! storm.

use std::time::{Duration, Instant};

/// So many may be replaced in a row.
const IN_A_ROW: u32 = 20;

/// One more for each of these.
const EACH: Duration = Duration::from_secs(3);

/// The rest after one that was in vain, doubled each time.
const IN_VAIN: Duration = Duration::from_secs(5);

/// A change of the keys makes the rest so short, unless it was in vain so often.
const SOON: Duration = Duration::from_secs(1);
const OFTEN: u32 = 5;

/// The longest rest.
const LONGEST: Duration = Duration::from_secs(600);

/// What is left to spend on fresh workers of one member.
pub(super) struct Allowance {
    spent: u32,
    since: Instant,
    in_vain: u32,
    not_before: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            spent: 0,
            since: Instant::now(),
            in_vain: 0,
            not_before: None,
        }
    }
}

impl Allowance {
    /// Whether one may be replaced now.
    pub fn is_free(&mut self) -> bool {
        self.is_free_at(Instant::now())
    }

    fn is_free_at(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let regained = (passed.as_secs() / EACH.as_secs()) as u32;
        self.since += EACH * regained;
        self.spent = self.spent.saturating_sub(regained);
        self.spent < IN_A_ROW && self.not_before.is_none_or(|at| at <= now)
    }

    /// One was replaced, and it was good that it was.
    pub fn spent_well(&mut self) {
        self.spent += 1;
        self.in_vain = 0;
    }

    /// It was tried, and nothing is better than before.
    pub fn spent_in_vain(&mut self) {
        self.in_vain_at(Instant::now());
    }

    /// The keys have changed: what was in vain may not be so any longer.
    pub fn keys_have_changed(&mut self) {
        if self.in_vain <= OFTEN {
            let soon = Instant::now() + SOON;
            self.not_before = self.not_before.map(|at| at.min(soon));
        }
    }

    fn in_vain_at(&mut self, now: Instant) {
        let rest = IN_VAIN * 2_u32.saturating_pow(self.in_vain.min(16));
        self.in_vain += 1;
        self.not_before = Some(now + rest.min(LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_storm() {
        let mut allowance = Allowance::default();
        let start = allowance.since;
        let hour = Duration::from_secs(3600);
        let mut replaced = 0;
        let mut now = start;
        while now < start + hour {
            if allowance.is_free_at(now) {
                allowance.spent_well();
                replaced += 1;
            }
            now += Duration::from_millis(250);
        }
        assert!((1200..=1200 + IN_A_ROW).contains(&replaced), "{replaced}");
    }

    #[test]
    fn what_is_in_vain_is_tried_less_and_less() {
        let mut allowance = Allowance::default();
        let start = allowance.since;
        let mut tried = Vec::new();
        let mut now = start;
        while now < start + Duration::from_secs(3600) {
            if allowance.is_free_at(now) {
                allowance.in_vain_at(now);
                tried.push((now - start).as_secs());
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(tried[..5], [0, 5, 15, 35, 75]);
        assert!(tried.len() < 15, "{tried:?}");
    }
}
