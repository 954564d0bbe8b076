//! Runs of a simulation, one seed after the other.

use std::time::Instant;

/// Runs seeds until they have taken `steps` steps, and prints the rate. The environment's `STEPS` and `SEED` say how many
/// steps, and which seed is the first: `make simulate STEPS=10000000 SEED=1`. `run` answers the steps of one seed.
pub fn run_seeds(steps: u64, run: impl Fn(u64) -> u64) {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let (steps, first) = (
        number("STEPS").unwrap_or(steps),
        number("SEED").unwrap_or(0),
    );
    let begun = Instant::now();
    let (mut taken, mut told) = (0, 0);
    for seed in first.. {
        if taken >= steps {
            break;
        }
        taken += run(seed);
        if taken / 1_000_000 > told || taken >= steps {
            told = taken / 1_000_000;
            let minutes = begun.elapsed().as_secs_f64() / 60.0;
            let rate = taken as f64 / minutes / 1e6;
            println!("{taken} steps, seeds {first} to {seed}: {rate:.2} million a minute");
        }
    }
}
