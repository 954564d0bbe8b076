//! The burn-in over tokens in memory: interrupted and resumed, with errors and wrong signatures.

mod cards;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod report;
mod runs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Signer;
use hsmux_bench::burn_in::{self, BurnInOptions, BurnInReport, NamedToken};
use hsmux_bench::{BenchKey, Progress, RunControl};
use tempfile::TempDir;

/// Options for tests with `signers`, named `hsm1`, `hsm2`, ..., and the state in `folder`.
fn options(signers: Vec<Arc<Signer>>, folder: &Path, tests: u64) -> BurnInOptions {
    let key = BenchKey::find(&*signers[0], None).unwrap();
    let named_token = |(number, token): (u32, Arc<Signer>)| NamedToken {
        name: format!("hsm{number}"),
        token,
    };
    BurnInOptions {
        tokens: (1..).zip(signers).map(named_token).collect(),
        pool_counts: None,
        name: "tokens in memory".into(),
        key,
        mechanism: None,
        data_len: 32,
        callers: 4,
        tests,
        deadline: Duration::from_secs(10),
        processes: Vec::new(),
        state: folder.join("state.json"),
        save_every: Duration::from_millis(100),
        restart: false,
    }
}

fn signers(count: usize) -> Vec<Arc<Signer>> {
    (0..count).map(|_| Arc::new(Signer::new())).collect()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs until this number of tests, then interrupts.
fn until(options: &BurnInOptions, performed: u64) -> BurnInReport {
    let stop = AtomicBool::new(false);
    let progress = |progress: &Progress| {
        if progress.done >= performed {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = RunControl {
        stop: &stop,
        progress: &progress,
    };
    burn_in::run(options, control).unwrap()
}
