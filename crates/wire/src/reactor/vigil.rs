//! Looking again before going to sleep: waking a thread costs more than a fast token's work.

use std::time::Duration;

/// How long the last waits took, and so whether it is worth staying awake for the next one.
pub(super) struct Vigil {
    cpus: usize,
    /// Moving average of the waits, in nanoseconds.
    usual: u64,
}

/// Nanoseconds: what comes later than this is worth a sleep.
const SOON: u64 = 200_000;

/// Nanoseconds that a wait counts for at most, so that after a long one some short ones are believed.
const LONGEST: u64 = 2_000_000;

/// Pauses between two looks: about a microsecond, in which the other thread of the core works.
pub(super) const PAUSES: usize = 20;

impl Vigil {
    pub fn new() -> Self {
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            usual: LONGEST,
        }
    }

    /// How long to stay awake while so many operations run elsewhere on this machine; `None` to
    /// sleep at once. A CPU that somebody else could use is left to them.
    pub fn watch(&self, running: usize) -> Option<Duration> {
        let worth = self.usual < SOON && running < self.cpus;
        worth.then(|| Duration::from_nanos(3 * self.usual))
    }

    /// A wait is over.
    pub fn waited(&mut self, wait: Duration) {
        let wait = (wait.as_nanos() as u64).min(LONGEST);
        self.usual = self.usual - self.usual / 8 + wait / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: &[(usize, u64)]) -> Vigil {
        let mut vigil = Vigil {
            cpus: 2,
            ..Vigil::new()
        };
        for &(count, micros) in waits {
            (0..count).for_each(|_| vigil.waited(Duration::from_micros(micros)));
        }
        vigil
    }

    #[test]
    fn stays_awake_for_what_comes_soon() {
        let awake = after(&[(100, 80)]).watch(1).expect("worth it");
        assert!(awake > Duration::from_micros(80), "{awake:?}");
        assert!(awake < Duration::from_micros(400), "{awake:?}");
    }

    #[test]
    fn sleeps_when_nothing_comes() {
        assert_eq!(after(&[]).watch(0), None, "at the start");
        assert_eq!(after(&[(100, 5000)]).watch(1), None, "a slow token");
        let pause = [(100, 80), (1, 60_000_000)];
        assert_eq!(after(&pause).watch(0), None, "nobody asks");
    }

    #[test]
    fn leaves_the_cpus_to_the_workers() {
        assert_eq!(after(&[(100, 80)]).watch(2), None);
    }
}
