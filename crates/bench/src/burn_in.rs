//! The burn-in: so many signatures that they take hours, each verified; interrupted and resumed.
//!
//! A *test* is a signature over fresh data and its verification. What was found is in a [state
//! file](Options::state) all the time, so that a run that ends early is gone on with, not lost. Memory
//! does not grow with the number of tests.

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

/// What is tested, how often.
pub struct Options {
    /// What signs: one pool, or tokens by themselves, to which the tests go in turns.
    pub tokens: Vec<Driven>,
    /// Looks behind the pool, where there is one and it may be asked.
    pub look: Option<Arc<Look>>,
    /// What the report calls all of it: `pool web through the daemon`.
    pub name: String,
    /// With which key; its signatures can be verified.
    pub key: Key,
    /// How, if not as usual for the key.
    pub mechanism: Option<Mechanism>,
    /// Bytes that each signature is over, new ones for each test; 32 is a digest.
    pub data_len: usize,
    /// Callers at the same time, a thread each.
    pub callers: usize,
    /// How many tests there are to be, with those of earlier runs.
    pub tests: u64,
    /// How long one signature may take.
    pub deadline: Duration,
    /// Other processes whose memory is watched, each with all that descend from it: the daemon.
    pub processes: Vec<u32>,
    /// The file that holds what was found so far. One that is there is gone on with.
    pub state: PathBuf,
    /// How often it is written.
    pub save_every: Duration,
    /// Whether a state file that is there is begun anew.
    pub restart: bool,
}

/// A token that the burn-in drives.
#[derive(Clone)]
pub struct Driven {
    /// What reports call it.
    pub name: String,
    /// It.
    pub token: Arc<dyn Token>,
}

/// What a pool says of itself while it is driven; `None` while it cannot be asked.
pub type Look = dyn Fn() -> Option<Behind> + Send + Sync;

/// What is behind a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Its members, with all that they did since the pool began.
    pub members: Vec<Member>,
    /// Its processes: another one after the daemon was started anew.
    pub processes: Vec<u32>,
}

/// A member of a pool, as the pool counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Operations that it answered.
    pub served: u64,
    /// Operations that failed because of it, and went to another member.
    pub failed: u64,
}

/// Tests until there are as many as asked, or until somebody interrupts it. Tests that fail are in
/// the report; an error means that nothing could be tested, or that the state file could not be
/// read or written.
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
            // By the rate of this run: earlier ones may have had another machine.
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
