//! One worker of a round: runs operations and records their durations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use hsmux_token::{Error, Result};

use super::round::Board;
use super::{Load, Run};
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
    pub(super) fn end(&mut self, board: &Board<'_>) {
        self.elapsed = board.start().elapsed();
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
pub fn work(index: usize, board: &Board<'_>, run: &Run<'_>, mut tally: Tally) -> Tally {
    let pace = Pace::new(board);
    while let Some(claimed) = board.claim() {
        let Some(start) = pace.start_of(claimed) else {
            break;
        };
        let answer = run(index);
        let took = start.elapsed();
        board.tell(answer.is_ok());
        tally.record(took, answer, board.keeps);
        if tally.weight() > board.share {
            board.fill();
        }
    }
    tally.end(board);
    tally
}

/// The start times of operations.
pub(super) enum Pace<'a> {
    AtOnce,
    Every {
        interval: Duration,
        board: &'a Board<'a>,
    },
}

impl<'a> Pace<'a> {
    pub(super) fn new(board: &'a Board<'a>) -> Self {
        match board.load {
            Load::Closed { .. } => Self::AtOnce,
            Load::Open { per_second, .. } => {
                // The default of 50 us would be added to every latency.
                if let Err(error) =
                    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
                {
                    debug_assert!(false, "timer slack: {error}");
                }
                let interval =
                    Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX);
                Self::Every { interval, board }
            }
        }
    }

    /// The start of the latency; waits until then if it is in the future.
    fn start_of(&self, claimed: u64) -> Option<Instant> {
        let Self::Every { board, .. } = self else {
            return Some(Instant::now());
        };
        let (until, begins) = self.intended(claimed)?;
        (board.wait_until(until) && begins).then_some(until)
    }

    /// The same without a thread. Its timer has milliseconds, so a delayed start counts from the actual wake-up.
    pub(super) async fn start_of_waiting(&self, claimed: u64) -> Option<Instant> {
        let Self::Every { board, .. } = self else {
            return Some(Instant::now());
        };
        let (until, begins) = self.intended(claimed)?;
        if begins && until <= Instant::now() {
            return Some(until);
        }
        while until > Instant::now() && !board.stopped() {
            let slice = until.min(Instant::now() + super::round::GLANCE);
            tokio::time::sleep_until(slice.into()).await;
        }
        (begins && !board.stopped()).then(Instant::now)
    }

    /// The time to wait for, and whether an operation starts then. The round lasts its full time even without more
    /// operations.
    fn intended(&self, claimed: u64) -> Option<(Instant, bool)> {
        let Self::Every { interval, board } = self else {
            return None;
        };
        let offset = interval.as_secs_f64() * claimed as f64;
        let intended = board.start() + Duration::try_from_secs_f64(offset).ok()?;
        Some(match board.end() {
            Some(end) if intended >= end => (end, false),
            _ => (intended, true),
        })
    }
}
