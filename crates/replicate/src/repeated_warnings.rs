//! Warnings that come again and again: the first is a line in the log, then the tenth, the hundredth and so on.

use hsmux_token::sync::Mutex;
use std::collections::BTreeMap;

/// How often each has come, and what was said last.
pub(super) struct RepeatedWarnings<K>(Mutex<BTreeMap<K, RepeatedWarning>>);

struct RepeatedWarning {
    times: u64,
    last: String,
}

/// So many are told apart; more are no lines.
const MOST: usize = 4096;

impl<K> Default for RepeatedWarnings<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> RepeatedWarnings<K> {
    /// Counts one; how often it has come by now, if that is worth a line.
    pub fn note(&self, what: K, said: impl Into<String>) -> Option<u64> {
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(&what) {
            return None;
        }
        let repeat = all.entry(what).or_insert_with(|| RepeatedWarning {
            times: 0,
            last: String::new(),
        });
        repeat.times += 1;
        repeat.last = said.into();
        (repeat.times == 10_u64.pow(repeat.times.ilog10())).then_some(repeat.times)
    }

    /// Forgets those that are over.
    pub fn retain(&self, is_left: impl Fn(&K) -> bool) {
        self.0.lock().retain(|what, _| is_left(what));
    }

    /// How often one has come, and what was said last.
    pub fn of(&self, what: &K) -> Option<(u64, String)> {
        let all = self.0.lock();
        let repeat = all.get(what)?;
        Some((repeat.times, repeat.last.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_a_line_once_and_then_less_and_less() {
        let repeats = RepeatedWarnings::default();
        let lines: Vec<u64> = (0..250).filter_map(|_| repeats.note("a", "why")).collect();
        assert_eq!(lines, [1, 10, 100]);
        assert_eq!(repeats.note("b", "why"), Some(1));
        assert_eq!(repeats.of(&"a"), Some((250, "why".into())));
        repeats.retain(|what| *what != "a");
        assert_eq!(repeats.note("a", "again"), Some(1));
    }

    #[test]
    fn there_is_a_limit() {
        let repeats = RepeatedWarnings::default();
        let lines = (0..2 * MOST)
            .filter_map(|what| repeats.note(what, ""))
            .count();
        assert_eq!(lines, MOST);
    }
}
