//! One worker of a round: runs operations and records their durations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use hsmux_token::{Error, Result};

use super::round::RoundState;
use super::{LoadModel, WorkerOperation};
use crate::measurement::{count_fault, latencies};

/// Initial capacity for answers, in bytes.
const ANSWERS: usize = 64 << 10;

/// The results of one worker in one round. Without answers its size is constant.
pub struct Tally {
    /// Latencies of successful operations, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Error messages, with their counts.
    pub faults: BTreeMap<String, u64>,
    /// From the start of the round to the end of the worker's last operation.
    pub elapsed: Duration,
    answers: Vec<u8>,
    ends: Vec<usize>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            latencies: latencies(),
            faults: BTreeMap::new(),
            elapsed: Duration::ZERO,
            answers: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Allocates memory before the round: on a virtual machine, page faults of a hundred workers take a tenth of a
    /// second.
    pub(super) fn ready() -> Self {
        let mut tally = Self::new();
        tally.latencies.clear();
        tally.answers.resize(ANSWERS, 0);
        tally.answers.clear();
        tally
    }

    /// The kept answers.
    pub fn answers(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.answers[start..*end])
    }

    /// The tally of a worker that could not start.
    pub(super) fn failed(error: &Error) -> Self {
        let mut tally = Self::new();
        count_fault(&mut tally.faults, error.to_string(), 1);
        tally
    }

    /// Records the worker's end.
    pub(super) fn end(&mut self, round: &RoundState<'_>) {
        self.elapsed = round.start().elapsed();
    }

    pub(super) fn record(&mut self, took: Duration, answer: Result<Bytes>, keeps: bool) {
        match answer {
            Ok(answer) => {
                self.latencies.saturating_record(took.as_nanos() as u64);
                if keeps {
                    self.answers.extend_from_slice(&answer);
                    self.ends.push(self.answers.len());
                }
            }
            Err(error) => count_fault(&mut self.faults, error.to_string(), 1),
        }
    }

    /// The memory of the answers, in bytes.
    fn weight(&self) -> usize {
        self.answers.len() + self.ends.len() * size_of::<usize>()
    }
}

/// Runs operations while the board has any.
pub fn work(
    index: usize,
    round: &RoundState<'_>,
    run: &WorkerOperation<'_>,
    mut tally: Tally,
) -> Tally {
    let start_times = StartTimes::new(round);
    while let Some(number) = round.next_operation() {
        let Some(start) = start_times.start_of(number) else {
            break;
        };
        let answer = run(index);
        let took = start.elapsed();
        round.tell(answer.is_ok());
        tally.record(took, answer, round.keeps);
        if tally.weight() > round.share {
            round.fill();
        }
    }
    tally.end(round);
    tally
}

/// The start times of operations.
pub(super) enum StartTimes<'a> {
    AtOnce,
    Every {
        interval: Duration,
        round: &'a RoundState<'a>,
    },
}

impl<'a> StartTimes<'a> {
    pub(super) fn new(round: &'a RoundState<'a>) -> Self {
        match round.load {
            LoadModel::Closed { .. } => Self::AtOnce,
            LoadModel::Open { per_second, .. } => {
                // The default of 50 us would be added to every latency.
                if let Err(error) =
                    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
                {
                    debug_assert!(false, "timer slack: {error}");
                }
                let interval =
                    Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX);
                Self::Every { interval, round }
            }
        }
    }

    /// The start of the latency; waits until then if it is in the future.
    fn start_of(&self, number: u64) -> Option<Instant> {
        let Self::Every { round, .. } = self else {
            return Some(Instant::now());
        };
        let (until, begins) = self.intended(number)?;
        (round.wait_until(until) && begins).then_some(until)
    }

    /// The same without a thread. Its timer has milliseconds, so a delayed start counts from the actual wake-up.
    pub(super) async fn start_of_waiting(&self, number: u64) -> Option<Instant> {
        let Self::Every { round, .. } = self else {
            return Some(Instant::now());
        };
        let (until, begins) = self.intended(number)?;
        if begins && until <= Instant::now() {
            return Some(until);
        }
        while until > Instant::now() && !round.stopped() {
            let slice = until.min(Instant::now() + super::round::SAMPLE_INTERVAL);
            tokio::time::sleep_until(slice.into()).await;
        }
        (begins && !round.stopped()).then(Instant::now)
    }

    /// The time to wait for, and whether an operation starts then. The round lasts its full time even without more
    /// operations.
    fn intended(&self, number: u64) -> Option<(Instant, bool)> {
        let Self::Every { interval, round } = self else {
            return None;
        };
        let offset = interval.as_secs_f64() * number as f64;
        let intended = round.start() + Duration::try_from_secs_f64(offset).ok()?;
        Some(match round.end() {
            Some(end) if intended >= end => (end, false),
            _ => (intended, true),
        })
    }
}
