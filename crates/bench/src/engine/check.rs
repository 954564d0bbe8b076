//! Checks of answers, outside the measurement.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::worker::Tally;
use super::{Check, Progress, RunControl};

/// The time for checks after an interruption; the remaining answers count as not checked.
const CHECK_GRACE: Duration = Duration::from_secs(2);

/// The result of the checks.
#[derive(Default)]
pub struct CheckCounts {
    pub good: u64,
    pub bad: u64,
    /// The error of the first wrong answer.
    pub example: Option<String>,
}

/// Checks every answer, on all cores.
pub fn all(tallies: &[Tally], check: &Check<'_>, control: RunControl<'_>) -> CheckCounts {
    let of = tallies.iter().map(|tally| tally.latencies.len()).sum();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let job = CheckJob {
        tallies,
        check,
        stop: control.stop,
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
    };
    let began = Instant::now();
    thread::scope(|scope| {
        let (working, ended) = mpsc::channel::<()>();
        let threads: Vec<_> = (0..cores.min(tallies.len()))
            .map(|_| {
                let (job, working) = (&job, working.clone());
                scope.spawn(move || {
                    let _working = working;
                    job.run()
                })
            })
            .collect();
        drop(working);
        while ended.recv_timeout(Duration::from_millis(100)) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            let done = job.done.load(Relaxed);
            (control.progress)(&Progress::of_check(done, of, began.elapsed()));
        }
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .fold(CheckCounts::default(), CheckCounts::with)
    })
}

impl CheckCounts {
    fn with(self, other: Self) -> Self {
        Self {
            good: self.good + other.good,
            bad: self.bad + other.bad,
            example: self.example.or(other.example),
        }
    }
}

/// The shared state of the checking threads.
struct CheckJob<'a> {
    tallies: &'a [Tally],
    check: &'a Check<'a>,
    stop: &'a AtomicBool,
    next: AtomicUsize,
    done: AtomicU64,
}

impl CheckJob<'_> {
    /// Checks the answers of one worker after another.
    fn run(&self) -> CheckCounts {
        let mut checked = CheckCounts::default();
        let mut stopped = None;
        loop {
            let worker = self.next.fetch_add(1, Relaxed);
            let Some(tally) = self.tallies.get(worker) else {
                return checked;
            };
            for answer in tally.answers() {
                if self.stop.load(Relaxed)
                    && stopped.get_or_insert_with(Instant::now).elapsed() > CHECK_GRACE
                {
                    return checked;
                }
                match (self.check)(worker, answer) {
                    Ok(()) => checked.good += 1,
                    Err(error) => {
                        checked.bad += 1;
                        checked.example.get_or_insert_with(|| error.to_string());
                    }
                }
                self.done.fetch_add(1, Relaxed);
            }
        }
    }
}
