//! The counts of a running burn-in.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use hsmux_token::{Error, Kind, ck, rv_name};
use serde::{Deserialize, Serialize};

use super::state::{BurnInState, Count};

/// The result of a test.
pub enum Verdict {
    /// The signature verifies.
    Passed,
    /// No signature.
    Failed(Error),
    /// A wrong signature.
    Wrong(Error),
}

/// Failed tests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// `wrong signature`, the vendor's code (`CKR_DEVICE_ERROR`), or hsmux's kind (`Deadline`).
    pub kind: String,
    /// Their number.
    pub count: u64,
    /// The first few.
    pub examples: Vec<Example>,
}

/// A failed test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The token or pool.
    pub token: String,
    /// Its error, or the fault in its signature.
    pub message: String,
}

/// The kind of [`Verdict::Wrong`].
pub const WRONG: &str = "wrong signature";

/// The limits of stored examples of a kind, and of kinds.
const EXAMPLES: usize = 5;
const KINDS: usize = 20;

/// All counts. Readers do not delay callers.
pub struct Ledger {
    tokens: Vec<Tally>,
    failures: Mutex<Vec<FailureGroup>>,
}

struct Tally {
    name: String,
    passed: AtomicU64,
    failed: AtomicU64,
    wrong: AtomicU64,
}

impl Ledger {
    /// Continues the counts of earlier runs.
    pub fn resume(state: &BurnInState) -> Self {
        let tally = |count: &Count| Tally {
            name: count.name.clone(),
            passed: count.passed.into(),
            failed: count.failed.into(),
            wrong: count.wrong.into(),
        };
        Self {
            tokens: state.counts.iter().map(tally).collect(),
            failures: Mutex::new(state.failures.clone()),
        }
    }

    /// Counts a test of the token with this index.
    pub fn enter(&self, at: usize, verdict: &Verdict) {
        let tally = &self.tokens[at];
        let (counter, kind, error) = match verdict {
            Verdict::Passed => {
                tally.passed.fetch_add(1, Relaxed);
                return;
            }
            Verdict::Failed(error) => (&tally.failed, kind_of(error), error),
            Verdict::Wrong(error) => (&tally.wrong, WRONG.to_owned(), error),
        };
        counter.fetch_add(1, Relaxed);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = of_kind(&mut failures, kind);
        failure.count += 1;
        if failure.examples.len() < EXAMPLES {
            failure.examples.push(Example {
                token: tally.name.clone(),
                message: error.to_string(),
            });
        }
    }

    /// Finished tests, with any result.
    pub fn performed(&self) -> u64 {
        let of = |tally: &Tally| tally.passed.load(Relaxed);
        self.failed() + self.tokens.iter().map(of).sum::<u64>()
    }

    /// Failed tests.
    pub fn failed(&self) -> u64 {
        let of = |tally: &Tally| tally.failed.load(Relaxed) + tally.wrong.load(Relaxed);
        self.tokens.iter().map(of).sum()
    }

    /// Writes the counts into the state.
    pub fn copy_to(&self, state: &mut BurnInState) {
        for (count, tally) in state.counts.iter_mut().zip(&self.tokens) {
            count.passed = tally.passed.load(Relaxed);
            count.failed = tally.failed.load(Relaxed);
            count.wrong = tally.wrong.load(Relaxed);
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures.clone_from(&failures);
    }
}

fn of_kind(failures: &mut Vec<FailureGroup>, kind: String) -> &mut FailureGroup {
    let known = failures.iter().position(|failure| failure.kind == kind);
    let at = known.unwrap_or_else(|| {
        if failures.len() < KINDS {
            failures.push(FailureGroup {
                kind,
                count: 0,
                examples: Vec::new(),
            });
        }
        // If there are too many kinds, the last one counts the rest.
        failures.len() - 1
    });
    &mut failures[at]
}

fn kind_of(error: &Error) -> String {
    match error.kind() {
        // Vendor-defined codes have no name.
        Kind::Vendor(code) if code >= ck::CKR_VENDOR_DEFINED => format!("CKR 0x{code:08x}"),
        Kind::Vendor(code) => rv_name(code).to_owned(),
        kind => format!("{kind:?}"),
    }
}
