//! A process that dies in the middle of a change leaves it on every member, or on none.

use super::bench::{Tampered, again, pair, secret};
use super::{Bench, in_own_process};
use hsmux_token::ck::CKM_AES_KEY_GEN;
use hsmux_token::{Operation, Token};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TWO: &[&str] = &["hsm1", "hsm2"];
const DIE_AT: &str = "HSMUX_TEST_DIE_AT";

#[test]
fn a_crash_at_any_operation_leaves_all_or_nothing() {
    in_own_process(
        "crash::a_crash_at_any_operation_leaves_all_or_nothing",
        TWO,
        |folder| {
            // Enrolled before, so that the change itself is what is interrupted.
            Bench::new(folder, TWO, 0).make(&secret(CKM_AES_KEY_GEN, 32, "first"));
            let (mut all, mut none, mut at) = (0, 0, 0);
            loop {
                let died = dies(folder, at);
                let bench = Bench::new(folder, TWO, 0);
                let before = settled(&bench);
                // What the crash left is decided, and a change goes on as ever.
                match before {
                    0 => none += 1,
                    _ => all += 1,
                }
                for id in bench.everywhere().into_iter().skip(1) {
                    let _ = bench.change(&Operation::Destroy { object: id.into() });
                }
                drop(bench);
                if !died {
                    break;
                }
                at += 1;
            }
            assert!(none > 5, "{none} crashes came before enough members had it");
            assert!(all >= 1, "the last run came through");
        },
    );
}

/// The number of objects on every member, beside the first key, once all have caught up.
fn settled(bench: &Bench) -> usize {
    for name in TWO {
        let member = bench.pool.returns(name);
        let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
        assert!(told.failed.is_empty(), "{told:?}");
    }
    bench.everywhere().len() - 1
}

/// Whether a process that changes something died at its operation number `at`.
fn dies(folder: &Path, at: usize) -> bool {
    let status = again("crash::the_process_that_dies", folder)
        .env(DIE_AT, at.to_string())
        .status()
        .unwrap();
    assert!(status.success() || status.signal().is_some(), "{status}");
    !status.success()
}

/// Not a test by itself: what [`dies`] runs.
#[test]
fn the_process_that_dies() {
    let Ok(at) = std::env::var(DIE_AT) else {
        return;
    };
    let left = Arc::new(AtomicUsize::new(at.parse().unwrap()));
    in_own_process("crash::the_process_that_dies", TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        for name in TWO {
            let inner = bench.token(name);
            let left = Arc::clone(&left);
            let tamper = move |_: &Operation| {
                let taken =
                    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
                if taken.is_err() {
                    std::process::abort();
                }
                None
            };
            let tampered: Arc<dyn Token> = Arc::new(Tampered { inner, tamper });
            bench.swap(name, tampered);
        }
        bench.make(&pair(false, "new"));
    });
}
