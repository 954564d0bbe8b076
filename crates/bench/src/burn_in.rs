//! The burn-in: hours of signatures, each verified; it can be interrupted and resumed. Memory stays constant.
//! A *test* is a signature over fresh data and its verification. Results are saved in a [state file](Options::state).

mod ledger;
mod page;
mod recorder;
mod report;
mod state;
mod text;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Kind, Mechanism, Result, Token};

use crate::engine::{self, Control, Load, Phase, Plan, Progress, Until};
use crate::{Key, target};

pub use ledger::{Example, Failure};
pub use report::{Held, Pace, Report, Served};

/// Options of a burn-in.
pub struct Options {
    /// The signers: one pool, or single tokens that take turns.
    pub tokens: Vec<Driven>,
    /// Queries the pool behind the token, if there is one and that is permitted.
    pub look: Option<Arc<Look>>,
    /// The name in the report: `pool web through the daemon`.
    pub name: String,
    /// The key; its signatures can be verified.
    pub key: Key,
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
pub struct Driven {
    /// Its name in reports.
    pub name: String,
    /// The token.
    pub token: Arc<dyn Token>,
}

/// Queries the pool's state; `None` while the pool does not answer.
pub type Look = dyn Fn() -> Option<Behind> + Send + Sync;

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Its members, with their counts since the pool's start.
    pub members: Vec<Member>,
    /// Its processes, which change when the daemon restarts.
    pub processes: Vec<u32>,
}

/// A member of a pool, with the pool's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Operations that it completed.
    pub served: u64,
    /// Operations that failed on it and went to another member.
    pub failed: u64,
}

/// Runs until the number of tests is reached or it is interrupted. Failed tests are in the report; an error means that
/// no test was possible, or that the state file could not be read or written.
pub fn run(options: &Options, control: Control<'_>) -> Result<Report> {
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
        return Ok(Report::new(&state, options));
    }
    let work = work::Work::new(options, mechanism, &ledger, control.stop)?;
    let recorder = recorder::Recorder::begin(state, &ledger, options)?;
    let progress = |seen: &Progress| {
        let elapsed = recorder.glance(seen.elapsed);
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
        load: Load::Closed {
            workers: options.callers,
        },
        until: Until::Count(left),
        warm_up: Duration::ZERO,
        processes: Vec::new(),
    };
    let control = Control {
        progress: &progress,
        ..control
    };
    let ended = engine::measure(&plan, control, &|caller| work.test(caller), None);
    let elapsed = Duration::try_from_secs_f64(ended.elapsed_s).unwrap_or_default();
    Ok(Report::new(&recorder.end(elapsed)?, options))
}
