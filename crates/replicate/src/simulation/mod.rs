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
    let number = |name: &str, usual: u64| {
        let value = std::env::var(name).ok();
        value.and_then(|value| value.parse().ok()).unwrap_or(usual)
    };
    let (steps, first) = (number("STEPS", 10 * STEPS), number("SEED", 0));
    let begun = std::time::Instant::now();
    let (mut taken, mut told) = (0, 0);
    for seed in first.. {
        if taken >= steps {
            break;
        }
        taken += ChangeRun::new(seed).go(STEPS).0;
        if taken / 1_000_000 > told || taken >= steps {
            told = taken / 1_000_000;
            let minutes = begun.elapsed().as_secs_f64() / 60.0;
            let rate = taken as f64 / minutes / 1e6;
            println!("{taken} steps, seeds {first} to {seed}: {rate:.2} million a minute");
        }
    }
}

#[test]
fn a_seed_repeats_a_run() {
    let trace = |seed| ChangeRun::new(seed).go(1_000).1;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
