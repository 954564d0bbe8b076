//! Changes of token objects in a deterministic simulation: `docs/internals/simulation.md`.
//!
//! A seed decides what clients change, how tokens and the disk fail, and when the daemon dies. A failure names the seed
//! and the step, which repeat it.

mod change;
mod clients;
mod cryptography;
mod disk;
mod expected;
mod facts;
mod faults;
mod hooks;
mod invariants;
mod plan;
mod pool;
mod run;
mod token;
mod token_model;
mod world;

pub(crate) use hooks::{fill, seconds, writes, written};

use run::ChangeRun;

/// Steps of one seed at least.
const STEPS: u64 = 4_000;

/// `make simulate CRATE=replicate STEPS=10000000 SEED=1` takes more of them.
#[test]
fn a_change_reaches_enough_members_or_none() {
    hsmux_token::fake::run_seeds(10 * STEPS, |seed| ChangeRun::new(seed).go(STEPS).0);
}

#[test]
fn a_seed_repeats_a_run() {
    let trace = |seed| ChangeRun::new(seed).go(1_000).1;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
