//! The trail in a deterministic simulation: `docs/internals/simulation.md`.
//!
//! A seed decides what clients do, when the writer runs, when time passes, how the disk fails, and when the daemon
//! dies. A failure names the seed and the step, which repeat it.

mod checks;
mod clients;
mod deaths;
mod disk;
mod log_files;
mod model;
mod plan;
mod run;

use std::cell::RefCell;
use std::time::{Duration, Instant, SystemTime};

pub use disk::SimulatedDisk;
use run::TrailRun;

/// Steps of one seed.
const STEPS: u64 = 5_000;

/// `make simulate CRATE=audit STEPS=10000000 SEED=1` takes more of them.
#[test]
fn nothing_is_answered_before_its_line_is_on_the_trail() {
    hsmux_token::fake::run_seeds(3 * STEPS, |seed| TrailRun::new(seed).go(STEPS).0);
}

#[test]
fn a_seed_repeats_a_run() {
    let trace = |seed| TrailRun::new(seed).go(2_000).1;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// What the code under test finds instead of clock and disk.
struct Here {
    base: Instant,
    age: Duration,
    disk: SimulatedDisk,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

pub fn now() -> Option<Instant> {
    HERE.with_borrow(|here| here.as_ref().map(|here| here.base + here.age))
}

pub fn wall() -> Option<SystemTime> {
    // 2026-01-01.
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    HERE.with_borrow(|here| here.as_ref().map(|here| begin + here.age))
}

pub fn with_disk<T>(act: impl FnOnce(&mut SimulatedDisk) -> T) -> Option<T> {
    HERE.with_borrow_mut(|here| here.as_mut().map(|here| act(&mut here.disk)))
}

/// The time since the beginning.
fn age() -> Duration {
    HERE.with_borrow(|here| here.as_ref().map_or(Duration::ZERO, |here| here.age))
}

fn on_disk<T>(act: impl FnOnce(&mut SimulatedDisk) -> T) -> T {
    with_disk(act).expect("the simulation has begun")
}
