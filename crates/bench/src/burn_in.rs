//! The burn-in: hours of signatures, each verified; it can be interrupted and resumed. Memory stays constant.
//! A *test* is a signature over fresh data and its verification. Results are saved in a
//! [state file](BurnInOptions::state).

mod ledger;
mod page;
mod recorder;
mod report;
mod state;
mod test_runner;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Kind, Mechanism, Result, Token};

use crate::engine::{self, LoadModel, Phase, Plan, Progress, RunControl, Until};
use crate::{BenchKey, target};

pub use ledger::{Example, FailureGroup};
pub use report::{BurnInReport, ProcessMemory, RatePoint, TokenCounts};

/// Options of a burn-in.
pub struct BurnInOptions {
    /// The signers: one pool, or single tokens that take turns.
    pub tokens: Vec<NamedToken>,
    /// Queries the counts of the pool behind the token, if there is one and that is permitted.
    pub pool_counts: Option<Arc<PoolCountsQuery>>,
    /// The name in the report: `pool web through the daemon`.
    pub name: String,
    /// The key; its signatures can be verified.
    pub key: BenchKey,
    /// The mechanism, if not the usual one of the key.
    pub mechanism: Option<Mechanism>,
    /// Length of the signed data in bytes, new for each test; 32 is a digest.
    pub data_len: usize,
    /// Concurrent callers, a thread each.
    pub callers: usize,
    /// The target number of tests, including earlier runs.
    pub tests: u64,
    /// How long one signature may take.
    pub deadline: Duration,
    /// Other processes whose memory is sampled, each with all its descendants: the daemon.
    pub processes: Vec<u32>,
    /// The file of the results so far. If it exists, the burn-in is resumed.
    pub state: PathBuf,
    /// How often it is written.
    pub save_every: Duration,
    /// Whether to discard an existing state file.
    pub restart: bool,
}

/// A token in the burn-in.
#[derive(Clone)]
pub struct NamedToken {
    /// Its name in reports.
    pub name: String,
    /// The token.
    pub token: Arc<dyn Token>,
}

/// Queries the pool's counts; `None` while the pool does not answer.
pub type PoolCountsQuery = dyn Fn() -> Option<PoolCounts> + Send + Sync;

/// The counts and processes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Its members, with their counts since the pool's start.
    pub members: Vec<MemberCounts>,
    /// Its processes, which change when the daemon restarts.
    pub processes: Vec<u32>,
}

/// The counts of one member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberCounts {
    /// Its name.
    pub name: String,
    /// Operations that it completed.
    pub served: u64,
    /// Operations that failed on it and went to another member.
    pub failed: u64,
}

/// Runs until the number of tests is reached or it is interrupted. Failed tests are in the report; an error means that
/// no test was possible, or that the state file could not be read or written.
pub fn run(options: &BurnInOptions, control: RunControl<'_>) -> Result<BurnInReport> {
    if options.tokens.is_empty() || options.callers == 0 || options.tests == 0 {
        let message = "burn-in: at least one token, one caller and one test";
        return Err(Error::request(Kind::Invalid, message));
    }
    let mechanism = options.mechanism.as_ref().unwrap_or(&options.key.mechanism);
    target::fits(&options.key, mechanism)?;
    let state = state::open(options, mechanism)?;
    let ledger = ledger::Ledger::resume(&state);
    let before = ledger.performed();
    let left = options.tests.saturating_sub(before);
    if left == 0 {
        return Ok(BurnInReport::new(&state, options));
    }
    let runner = test_runner::TestRunner::new(options, mechanism, &ledger, control.stop)?;
    let recorder = recorder::Recorder::begin(state, &ledger, options)?;
    let progress = |seen: &Progress| {
        let elapsed = recorder.record(seen.elapsed);
        (control.progress)(&Progress {
            phase: Phase::Measure,
            done: ledger.performed(),
            of: Some(options.tests),
            failed: ledger.failed(),
            elapsed,
            // From the rate of this run only, since earlier runs may be from another machine.
            left: seen.left,
        });
    };
    let plan = Plan {
        load: LoadModel::Closed {
            workers: options.callers,
        },
        until: Until::Count(left),
        warm_up: Duration::ZERO,
        processes: Vec::new(),
    };
    let control = RunControl {
        progress: &progress,
        ..control
    };
    let ended = engine::measure(&plan, control, &|caller| runner.test(caller), None);
    let elapsed = Duration::try_from_secs_f64(ended.elapsed_s).unwrap_or_default();
    Ok(BurnInReport::new(&recorder.end(elapsed)?, options))
}
