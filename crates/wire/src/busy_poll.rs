//! Busy polling: a thread polls for a moment before it sleeps. Waking it costs more than a fast token's work.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::socket::timespec;

/// The average of the last waits decides how long a thread polls before it sleeps.
pub(crate) struct BusyPoll {
    cpus: usize,
    /// Moving average of the waits, in nanoseconds.
    usual: u64,
}

/// Nanoseconds: what comes later than this is worth a sleep.
const SOON: u64 = 200_000;

/// Nanoseconds that a wait counts for at most, so that after a long one some short ones are believed.
const LONGEST: u64 = 2_000_000;

/// Pauses between two looks: about a microsecond, in which the other thread of the core works.
const PAUSES: usize = 20;

impl BusyPoll {
    pub fn new() -> Self {
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            usual: LONGEST,
        }
    }

    /// Waits for events until some time has passed. `running`: how many others are at work on this machine; `None`
    /// to sleep at once, whatever is worth while.
    pub fn wait(
        &mut self,
        epoll: &OwnedFd,
        events: &mut Vec<epoll::Event>,
        within: Option<Duration>,
        running: Option<usize>,
    ) -> rustix::io::Result<()> {
        let begin = Instant::now();
        if let Some(awake) = running.and_then(|running| self.poll_time(running)) {
            while begin.elapsed() < awake {
                if look(epoll, events, Some(Duration::ZERO))? > 0 {
                    self.waited(begin.elapsed());
                    return Ok(());
                }
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
        }
        let within = within.map(|within| within.saturating_sub(begin.elapsed()));
        look(epoll, events, within)?;
        self.waited(begin.elapsed());
        Ok(())
    }

    /// How long to poll while so many operations run elsewhere on this machine; `None` to
    /// sleep at once. A CPU that somebody else could use is left to them.
    fn poll_time(&self, running: usize) -> Option<Duration> {
        let worth = self.usual < SOON && running < self.cpus;
        worth.then(|| Duration::from_nanos(3 * self.usual))
    }

    /// A wait is over.
    fn waited(&mut self, wait: Duration) {
        let wait = (wait.as_nanos() as u64).min(LONGEST);
        self.usual = self.usual - self.usual / 8 + wait / 8;
    }
}

/// Waits for events, at most so long.
pub(crate) fn look(
    epoll: &OwnedFd,
    events: &mut Vec<epoll::Event>,
    within: Option<Duration>,
) -> rustix::io::Result<usize> {
    let within = within.map(timespec);
    match epoll::wait(epoll, spare_capacity(events), within.as_ref()) {
        Err(rustix::io::Errno::INTR) => Ok(0),
        looked => looked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: &[(usize, u64)]) -> BusyPoll {
        let mut busy_poll = BusyPoll {
            cpus: 2,
            ..BusyPoll::new()
        };
        for &(count, micros) in waits {
            (0..count).for_each(|_| busy_poll.waited(Duration::from_micros(micros)));
        }
        busy_poll
    }

    #[test]
    fn stays_awake_for_what_comes_soon() {
        let awake = after(&[(100, 80)]).poll_time(1).expect("worth it");
        assert!(awake > Duration::from_micros(80), "{awake:?}");
        assert!(awake < Duration::from_micros(400), "{awake:?}");
    }

    #[test]
    fn sleeps_when_nothing_comes() {
        assert_eq!(after(&[]).poll_time(0), None, "at the start");
        assert_eq!(after(&[(100, 5000)]).poll_time(1), None, "a slow token");
        let pause = [(100, 80), (1, 60_000_000)];
        assert_eq!(after(&pause).poll_time(0), None, "nobody asks");
    }

    #[test]
    fn leaves_the_cpus_to_the_workers() {
        assert_eq!(after(&[(100, 80)]).poll_time(2), None);
    }
}
