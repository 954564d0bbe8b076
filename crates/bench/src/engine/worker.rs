//! One worker of a round: take the next operation, do it, write down how long it took.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use hsmux_token::{Error, Result};

use super::round::Board;
use super::{Load, Run};
use crate::measurement::{count_fault, latencies};

/// Bytes of answers for which there is room when a round begins.
const ANSWERS: usize = 64 << 10;

/// What one worker saw in one round. Without answers to keep, its size does not grow with the round.
pub struct Tally {
    /// Of the operations that succeeded, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Messages of errors, and how often.
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

    /// Whose memory is there before the round begins: a machine that fetches it from a host of its own takes
    /// a tenth of a second for that of a hundred workers.
    pub(super) fn ready() -> Self {
        let mut tally = Self::new();
        tally.latencies.clear();
        tally.answers.resize(ANSWERS, 0);
        tally.answers.clear();
        tally
    }

    /// The answers that were kept.
    pub fn answers(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.answers[start..*end])
    }

    /// Of a worker that could not begin.
    pub(super) fn failed(error: &Error) -> Self {
        let mut tally = Self::new();
        count_fault(&mut tally.faults, error.to_string(), 1);
        tally
    }

    /// The worker has ended.
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

    /// What the answers hold in memory, in bytes.
    fn weight(&self) -> usize {
        self.answers.len() + self.ends.len() * size_of::<usize>()
    }
}

/// Works until the board has no more for it.
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

/// When an operation starts.
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

    /// The moment that the latency counts from; waits for it when it is still to come.
    fn start_of(&self, claimed: u64) -> Option<Instant> {
        let Self::Every { board, .. } = self else {
            return Some(Instant::now());
        };
        let (until, begins) = self.intended(claimed)?;
        (board.wait_until(until) && begins).then_some(until)
    }

    /// The same without a thread. Its clock ticks in milliseconds: who had to wait for the moment has
    /// nothing to catch up with, and starts when it wakes.
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

    /// Until when to wait, and whether an operation begins then: the round lasts as long as it was to,
    /// though nothing starts any more.
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
