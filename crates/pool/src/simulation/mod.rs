//! The whole core in a deterministic simulation: `docs/internals/simulation.md`.
//!
//! A seed decides what clients ask, which thread runs next, when time passes, and how tokens fail. A failure names the
//! seed and the step, which repeat it.

mod administrator;
mod clients;
mod executor;
mod faults;
mod invariants;
mod keys;
mod lock;
mod panics;
mod plan;
mod requests;
mod run;
mod token;
mod world;

pub(crate) use executor::{give_way, is_here, notify, now, random, spawn, wait, wall};
pub(crate) use lock::Mutex;

use run::Run;

/// Steps of one seed, before everything heals.
const STEPS: u64 = 20_000;

/// `make simulate STEPS=100000000 SEED=1` takes more of them.
#[test]
fn the_invariants_hold_while_tokens_fail() {
    hsmux_token::fake::run_seeds(10 * STEPS, |seed| Run::new(seed).go(STEPS).0);
}

#[test]
fn a_seed_repeats_a_run() {
    let trace = |seed| Run::new(seed).go(5_000).1;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
