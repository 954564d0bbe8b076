//! A process that dies in the middle of a change leaves it on every member, or on none.

use super::bench::{Tampered, again, pair, secret};
use super::{Bench, in_own_process};
use hsmux_token::ck::{CKA_SIGN, CKM_AES_KEY_GEN, CKM_GENERIC_SECRET_KEY_GEN};
use hsmux_token::{Error, ObjectId, Operation, Token};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TWO: &[&str] = &["hsm1", "hsm2"];
const DIE_AT: &str = "HSMUX_TEST_DIE_AT";
const MAKES: &str = "HSMUX_TEST_MAKES";

/// The keys that are made when the process dies.
fn new_keys() -> [Operation; 3] {
    [
        pair(false, "new"),
        secret(CKM_AES_KEY_GEN, 32, "new"),
        secret(CKM_GENERIC_SECRET_KEY_GEN, 32, "new"),
    ]
}

#[test]
fn a_crash_at_any_operation_leaves_all_or_nothing() {
    in_own_process(
        "crash::a_crash_at_any_operation_leaves_all_or_nothing",
        TWO,
        |folder| {
            // Enrolled before: the crash interrupts the change itself.
            let bench = Bench::new(folder, TWO, 0);
            let first = bench.make(&secret(CKM_AES_KEY_GEN, 32, "first"))[0]
                .object
                .id;
            drop(bench);
            for makes in 0..new_keys().len() {
                let (mut all, mut none, mut at) = (0, 0, 0);
                while dies(folder, makes, at) {
                    match left_beside(first, folder) {
                        0 => none += 1,
                        _ => all += 1,
                    }
                    at += 1;
                }
                assert!(none > 5, "{none} crashes came before enough members had it");
                assert!(
                    all + left_beside(first, folder) >= 1,
                    "the last run came through"
                );
            }
        },
    );
}

/// One member is enough, so the change is finished without the other one, which makes up for it.
#[test]
fn a_member_that_died_half_way_has_the_key_once() {
    let name = "crash::a_member_that_died_half_way_has_the_key_once";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 1);
        let inner = bench.token("hsm2");
        // Lost between the unwrapping and the check value.
        let tamper = |operation: &Operation| {
            let is_last = matches!(
                operation,
                Operation::SetAttributes { .. } | Operation::Destroy { .. }
            );
            is_last.then(|| Err(Error::lost("hsm2: the process has ended")))
        };
        let tampered: Arc<dyn Token> = Arc::new(Tampered {
            inner: Arc::clone(&inner),
            tamper,
        });
        bench.swap("hsm2", tampered);
        let mut operation = secret(CKM_GENERIC_SECRET_KEY_GEN, 32, "mac");
        if let Operation::Generate { template, .. } = &mut operation {
            *template = std::mem::take(template).with_flag(CKA_SIGN, true);
        }
        let made = bench.make(&operation)[0].object.id;
        let half_made = &bench.holdings()[1];
        assert!(
            !half_made.is_empty() && half_made.iter().all(|object| object.id != made),
            "{half_made:?}"
        );

        bench.swap("hsm2", inner);
        let member = bench.pool.returns("hsm2");
        let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
        assert!(told.failed.is_empty(), "{told:?}");
        assert_eq!(bench.everywhere(), [made]);
    });
}

/// How many objects every member has beside the first key, once all have caught up. They are deleted: changes go on
/// as ever.
fn left_beside(first: ObjectId, folder: &Path) -> usize {
    let bench = Bench::new(folder, TWO, 0);
    for name in TWO {
        let member = bench.pool.returns(name);
        let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
        assert!(told.failed.is_empty(), "{told:?}");
    }
    let mut left = bench.everywhere();
    left.retain(|id| *id != first);
    for id in &left {
        let object = (*id).into();
        bench.change(&Operation::Destroy { object }).unwrap();
    }
    left.len()
}

/// Runs a process that makes this; true if it died at its operation number `at`.
fn dies(folder: &Path, makes: usize, at: usize) -> bool {
    let status = again("crash::the_process_that_dies", folder)
        .env(MAKES, makes.to_string())
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
    let makes: usize = std::env::var(MAKES).unwrap().parse().unwrap();
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
        bench.make(&new_keys()[makes]);
    });
}
