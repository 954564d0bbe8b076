//! How often workers may be replaced: enough for every change of keys that makes them slow, and no storm.

use std::time::{Duration, Instant};

use crate::clock;

/// The most replacements in a row.
const IN_A_ROW: u32 = 20;

/// The time after which one more is allowed.
const EACH: Duration = Duration::from_secs(3);

/// The pause after a replacement in vain, doubled each time.
const IN_VAIN: Duration = Duration::from_secs(5);

/// A change of keys shortens the pause to this, unless more than `OFTEN` replacements in a row were in vain.
const SOON: Duration = Duration::from_secs(1);
const OFTEN: u32 = 5;

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(600);

/// The replacements that one member may have.
pub(super) struct ReplacementBudget {
    spent: u32,
    since: Instant,
    in_vain: u32,
    not_before: Option<Instant>,
}

impl Default for ReplacementBudget {
    fn default() -> Self {
        Self {
            spent: 0,
            since: clock::now(),
            in_vain: 0,
            not_before: None,
        }
    }
}

impl ReplacementBudget {
    /// True if a worker may be replaced now.
    pub fn is_free(&mut self) -> bool {
        self.is_free_at(clock::now())
    }

    fn is_free_at(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let regained = (passed.as_secs() / EACH.as_secs()) as u32;
        self.since += EACH * regained;
        self.spent = self.spent.saturating_sub(regained);
        self.spent < IN_A_ROW && self.not_before.is_none_or(|at| at <= now)
    }

    /// A worker was replaced.
    pub fn replaced(&mut self) {
        self.spent += 1;
    }

    /// The fresh worker is better.
    pub fn replaced_well(&mut self) {
        self.in_vain = 0;
    }

    /// A fresh worker is no better, or did not start.
    pub fn replaced_in_vain(&mut self) {
        self.in_vain_at(clock::now());
    }

    /// The keys have changed, so the next replacement may help.
    pub fn keys_have_changed(&mut self) {
        if self.in_vain <= OFTEN {
            let soon = clock::now() + SOON;
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
        let mut budget = ReplacementBudget::default();
        let start = budget.since;
        let hour = Duration::from_secs(3600);
        let mut replaced = 0;
        let mut now = start;
        while now < start + hour {
            if budget.is_free_at(now) {
                budget.replaced();
                budget.replaced_well();
                replaced += 1;
            }
            now += Duration::from_millis(250);
        }
        assert!((1200..=1200 + IN_A_ROW).contains(&replaced), "{replaced}");
    }

    #[test]
    fn replacements_in_vain_are_tried_less_and_less() {
        let mut budget = ReplacementBudget::default();
        let start = budget.since;
        let mut tried = Vec::new();
        let mut now = start;
        while now < start + Duration::from_secs(3600) {
            if budget.is_free_at(now) {
                budget.in_vain_at(now);
                tried.push((now - start).as_secs());
            }
            now += Duration::from_secs(1);
        }
        assert_eq!(tried[..5], [0, 5, 15, 35, 75]);
        assert!(tried.len() < 15, "{tried:?}");
    }
}
