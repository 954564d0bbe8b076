//! The report of a burn-in.

use serde::{Deserialize, Serialize};

use super::state::{BurnInState, Count, Share};
use super::{BurnInOptions, FailureGroup};
use crate::slope::Slope;
use crate::target::KeyDescription;
use crate::{Head, ScalingRow, memory, reference};

/// The results of all runs. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BurnInReport {
    /// Command, time of the end, and the machine of the last run.
    #[serde(flatten)]
    pub head: Head,
    /// Start of the first run (RFC 3339, UTC).
    pub begun_at: String,
    /// The tested pool or tokens.
    pub target: String,
    /// The key.
    pub key: KeyDescription,
    /// `CKM_SHA256_RSA_PKCS`.
    pub mechanism: String,
    /// Length of the signed data in bytes.
    pub data_len: usize,
    /// Concurrent callers in the last run.
    pub callers: usize,
    /// The target number of tests.
    pub tests: u64,
    /// Finished tests, each a signature and its verification.
    pub performed: u64,
    /// Tests without a signature.
    pub failed: u64,
    /// Tests with a wrong signature.
    pub wrong: u64,
    /// Time of all runs, in seconds.
    pub elapsed_s: f64,
    /// Passed tests per second.
    pub per_second: f64,
    /// Number of runs.
    pub runs: u32,
    /// The results of each token.
    pub tokens: Vec<TokenCounts>,
    /// The token with the highest rate, if there are several.
    pub fastest: Option<String>,
    /// The token with the lowest rate, if there are several.
    pub slowest: Option<String>,
    /// Failed tests by kind, the most frequent first.
    pub failures: Vec<FailureGroup>,
    /// Memory of every process involved.
    pub memory: Vec<ProcessMemory>,
    /// The rate over time.
    pub course: Vec<RatePoint>,
    /// Published figures of SmartCard-HSMs with keys of this kind.
    pub reference: Vec<ScalingRow>,
}

/// The results of one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Its name.
    pub name: String,
    /// Its signatures. A pool's count includes the proofs of its members.
    pub served: u64,
    /// Tests that failed on it; in a pool they went to another member.
    pub failed: u64,
    /// Its wrong signatures; unknown in a pool, which does not report a signature's member.
    pub wrong: Option<u64>,
    /// Signatures per second of the run.
    pub per_second: f64,
}

/// The memory of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Its process id.
    pub pid: u32,
    /// Its command line, shortened.
    pub name: String,
    /// Resident memory at the first sample, in bytes.
    pub first_bytes: f64,
    /// Resident memory at the last sample, in bytes.
    pub last_bytes: f64,
    /// The maximum, in bytes.
    pub peak_bytes: u64,
    /// Growth in bytes per hour; absent for processes that lived less than a minute.
    pub slope: Option<Slope>,
    /// Samples: seconds of the run, and bytes.
    pub samples: Vec<(f64, f64)>,
}

/// The rate in an interval of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatePoint {
    /// End of the interval, in seconds of the run.
    pub at_s: f64,
    /// Finished tests per second.
    pub per_second: f64,
}

impl BurnInReport {
    /// Whether every test was done, and passed.
    pub fn is_clean(&self) -> bool {
        self.is_finished() && self.failed == 0 && self.wrong == 0
    }

    /// Whether every test was done.
    pub fn is_finished(&self) -> bool {
        self.performed >= self.tests
    }

    /// Processes whose memory grows.
    pub fn growing(&self) -> impl Iterator<Item = &ProcessMemory> {
        self.memory.iter().filter(|process| {
            process
                .slope
                .is_some_and(|slope| !slope.zero && slope.per_hour > 0.0)
        })
    }

    pub(super) fn new(state: &BurnInState, options: &BurnInOptions) -> Self {
        let total = |of: fn(&Count) -> u64| state.counts.iter().map(of).sum::<u64>();
        let passed = total(|count| count.passed);
        let (failed, wrong) = (total(|count| count.failed), total(|count| count.wrong));
        let per_second = |count: u64| {
            if state.elapsed_s > 0.0 {
                count as f64 / state.elapsed_s
            } else {
                0.0
            }
        };
        let tokens: Vec<TokenCounts> = if state.members.is_empty() {
            state.counts.iter().map(TokenCounts::of_token).collect()
        } else {
            state.members.iter().map(TokenCounts::of_member).collect()
        };
        let tokens: Vec<TokenCounts> = tokens
            .into_iter()
            .map(|token| TokenCounts {
                per_second: per_second(token.served),
                ..token
            })
            .collect();
        let (slowest, fastest) = extremes(&tokens);
        let mut failures = state.failures.clone();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        let kind = options.key.published_kind();
        let subject = &state.subject;
        Self {
            head: Head::now("burn-in"),
            begun_at: state.begun_at.clone(),
            target: subject.target.clone(),
            key: subject.key.clone(),
            mechanism: subject.mechanism.clone(),
            data_len: subject.data_len,
            callers: options.callers,
            tests: options.tests.max(passed + failed + wrong),
            performed: passed + failed + wrong,
            failed,
            wrong,
            elapsed_s: state.elapsed_s,
            per_second: per_second(passed),
            runs: state.runs,
            tokens,
            fastest,
            slowest,
            failures,
            memory: state.memory.iter().map(ProcessMemory::of).collect(),
            course: rate_over_time(state.course.points()),
            reference: reference::scaling_of(kind),
        }
    }
}

impl TokenCounts {
    fn of_token(count: &Count) -> Self {
        Self {
            name: count.name.clone(),
            served: count.passed + count.wrong,
            failed: count.failed,
            wrong: Some(count.wrong),
            per_second: 0.0,
        }
    }

    fn of_member(share: &Share) -> Self {
        Self {
            name: share.name.clone(),
            served: share.served,
            failed: share.failed,
            wrong: None,
            per_second: 0.0,
        }
    }
}

impl ProcessMemory {
    fn of(process: &memory::MemorySamples) -> Self {
        let samples = process.series.points();
        let bytes = |sample: Option<&(f64, f64)>| sample.map_or(0.0, |sample| sample.1);
        Self {
            pid: process.pid,
            name: process.name.clone(),
            first_bytes: bytes(samples.first()),
            last_bytes: bytes(samples.last()),
            peak_bytes: process.peak_bytes,
            slope: Slope::of(samples),
            samples: samples.to_vec(),
        }
    }
}

/// The names of the slowest and the fastest of several.
fn extremes(tokens: &[TokenCounts]) -> (Option<String>, Option<String>) {
    if tokens.len() < 2 {
        return (None, None);
    }
    let by_rate = |a: &&TokenCounts, b: &&TokenCounts| a.per_second.total_cmp(&b.per_second);
    let name = |token: Option<&TokenCounts>| token.map(|token| token.name.clone());
    (
        name(tokens.iter().min_by(by_rate)),
        name(tokens.iter().max_by(by_rate)),
    )
}

fn rate_over_time(performed: &[(f64, f64)]) -> Vec<RatePoint> {
    let rate = |pair: &[(f64, f64)]| {
        let (took, done) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        RatePoint {
            at_s: pair[1].0,
            per_second: done / took,
        }
    };
    performed.windows(2).map(rate).collect()
}
