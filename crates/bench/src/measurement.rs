//! The result of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::engine::{CheckCounts, LoadModel, Plan, RoundProgress, Tally};
use crate::format::micros;
use crate::processes::Process;
use crate::timeline::Timeline;

/// The result of a run. Times are in seconds, latencies in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Threads that ran operations.
    pub workers: usize,
    /// Operations per second that an open loop intends; absent for a closed one.
    pub intended_per_second: Option<f64>,
    /// Successful operations.
    pub ops: u64,
    /// Failed operations.
    pub failed: u64,
    /// Correct answers.
    pub verified: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Time of the measurement, without warm-up and checks.
    pub elapsed_s: f64,
    /// Successful operations per second.
    pub per_second: f64,
    /// Latencies of successful operations; absent if there are none.
    pub latency_us: Option<Latency>,
    /// Errors, the most frequent first.
    pub faults: Vec<Fault>,
    /// CPU and memory of this process and the named ones.
    pub processes: Vec<Process>,
    /// The rate over time.
    pub timeline: Vec<crate::Point>,
    /// Whether the run was interrupted.
    pub interrupted: bool,
}

/// Latencies in microseconds, to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // They are called what they are.
pub struct Latency {
    pub min: f64,
    pub mean: f64,
    pub stddev: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    pub max: f64,
}

/// An error, and its number of operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The target's message.
    pub message: String,
    /// Its count.
    pub count: u64,
}

/// A day in nanoseconds, the maximum of recorded durations.
const LONGEST: u64 = 86_400_000_000_000;

/// The maximum number of different messages.
const FAULTS: usize = 20;

impl Measurement {
    /// A measurement by others, of which only these figures are known.
    pub const fn elsewhere(ops: u64, elapsed_s: f64, per_second: f64) -> Self {
        Self {
            workers: 0,
            intended_per_second: None,
            ops,
            failed: 0,
            verified: 0,
            wrong: 0,
            elapsed_s,
            per_second,
            latency_us: None,
            faults: Vec::new(),
            processes: Vec::new(),
            timeline: Vec::new(),
            interrupted: false,
        }
    }

    /// Whether every operation succeeded, and no answer is wrong.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.wrong == 0 && !self.interrupted
    }

    pub(crate) fn new(plan: &Plan, sum: &Sum, processes: Vec<Process>, interrupted: bool) -> Self {
        let elapsed = sum.elapsed.as_secs_f64();
        let mut faults: Vec<Fault> = sum
            .faults
            .iter()
            .map(|(message, &count)| Fault {
                message: message.clone(),
                count,
            })
            .collect();
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.count));
        faults.truncate(FAULTS);
        Self {
            workers: plan.load.workers(),
            intended_per_second: match plan.load {
                LoadModel::Closed { .. } => None,
                LoadModel::Open { per_second, .. } => Some(per_second),
            },
            ops: sum.ops,
            failed: sum.failed,
            verified: sum.good,
            wrong: sum.bad,
            elapsed_s: elapsed,
            per_second: if elapsed > 0.0 {
                sum.ops as f64 / elapsed
            } else {
                0.0
            },
            latency_us: Latency::of(&sum.latencies),
            faults,
            processes,
            timeline: sum.timeline.points().to_vec(),
            interrupted,
        }
    }
}

impl Latency {
    /// From a histogram in nanoseconds; `None` if it is empty.
    pub(crate) fn of(nanoseconds: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e3;
        (!nanoseconds.is_empty()).then(|| Self {
            min: nanoseconds.min() as f64 / 1e3,
            mean: nanoseconds.mean() / 1e3,
            stddev: nanoseconds.stdev() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: nanoseconds.max() as f64 / 1e3,
        })
    }

    /// The names of [`Self::parts`].
    pub(crate) const PARTS: [&'static str; 8] =
        ["min", "mean", "stddev", "p50", "p90", "p99", "p99.9", "max"];

    /// The cells of a row.
    pub(crate) fn parts(&self) -> [String; 8] {
        [
            self.min,
            self.mean,
            self.stddev,
            self.p50,
            self.p90,
            self.p99,
            self.p999,
            self.max,
        ]
        .map(micros)
    }
}

/// An empty histogram of latencies in nanoseconds, of constant size.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds in their order")
}

/// Counts a fault by its message; memory is limited even if all messages differ.
pub fn count_fault(faults: &mut BTreeMap<String, u64>, message: String, count: u64) {
    let known = faults.len() < FAULTS || faults.contains_key(&message);
    let message = if known {
        message
    } else {
        "errors that say something else".to_owned()
    };
    *faults.entry(message).or_default() += count;
}

/// All rounds so far.
pub struct Sum {
    pub ops: u64,
    pub failed: u64,
    pub elapsed: Duration,
    good: u64,
    bad: u64,
    latencies: Histogram<u64>,
    faults: BTreeMap<String, u64>,
    timeline: Timeline,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            ops: 0,
            failed: 0,
            elapsed: Duration::ZERO,
            good: 0,
            bad: 0,
            latencies: latencies(),
            faults: BTreeMap::new(),
            timeline: Timeline::default(),
        }
    }
}

impl Sum {
    /// Adds the state of the running round.
    pub fn watch(&mut self, seen: RoundProgress) {
        self.timeline.watch(self.elapsed, seen);
    }

    /// Adds a finished round.
    pub fn add(&mut self, tallies: &[Tally]) {
        self.timeline.next_round();
        self.elapsed += tallies
            .iter()
            .map(|tally| tally.elapsed)
            .max()
            .unwrap_or_default();
        for tally in tallies {
            self.ops += tally.latencies.len();
            self.latencies
                .add(&tally.latencies)
                .expect("histograms of the same bounds");
            for (message, &count) in &tally.faults {
                self.failed += count;
                count_fault(&mut self.faults, message.clone(), count);
            }
        }
    }

    /// Adds the checks of a round's answers.
    pub fn checked(&mut self, checked: &CheckCounts) {
        self.good += checked.good;
        self.bad += checked.bad;
        if let Some(example) = &checked.example {
            let message = format!("wrong answer: {example}");
            count_fault(&mut self.faults, message, checked.bad);
        }
    }
}
