//! A limit of log lines about events that others can repeat as often as they like.

use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// Lines of the log about one kind of event: so many in each second.
#[derive(Debug)]
pub struct LogLines {
    most: u32,
    /// When the current second began, and its lines.
    second: Mutex<Option<(Instant, u32)>>,
}

impl LogLines {
    /// The usual number of lines in a second.
    pub const USUAL: u32 = 20;

    /// No line yet; at most this number in a second.
    pub const fn new(most: u32) -> Self {
        Self {
            most,
            second: Mutex::new(None),
        }
    }

    /// Counts a line. Answers whether it may be written.
    pub fn may_add(&self) -> bool {
        self.may_add_at(Instant::now())
    }

    fn may_add_at(&self, now: Instant) -> bool {
        let mut second = self.second.lock();
        let is_same =
            |since: Instant| now.saturating_duration_since(since) < Duration::from_secs(1);
        let running = second.filter(|(since, _)| is_same(*since));
        let (since, lines) = running.unwrap_or((now, 0));
        *second = Some((since, lines.saturating_add(1)));
        lines < self.most
    }
}

impl Default for LogLines {
    fn default() -> Self {
        Self::new(Self::USUAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_twenty_lines() {
        let lines = LogLines::default();
        let begun = Instant::now();
        for second in 0..3 {
            let second = begun + Duration::from_secs(second);
            let moments = (0..1000).map(|ms| second + Duration::from_millis(ms));
            assert_eq!(moments.filter(|now| lines.may_add_at(*now)).count(), 20);
        }
    }
}
