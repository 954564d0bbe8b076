//! Tokens with wrong signatures, errors, or no answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hsmux_bench::burn_in::{self};
use hsmux_bench::{Progress, RunControl};

use crate::common::{Signer, fits_80_columns, keeps_schema, quiet};
use crate::{folder, options, signers, until};

#[test]
fn a_token_that_lies_is_named() {
    let folder = folder();
    let mut signers = signers(3);
    signers[1] = Arc::new(Signer {
        lies_every: 10,
        ..Signer::new()
    });
    let report = burn_in::run(&options(signers, folder.path(), 300), quiet()).unwrap();
    assert!(report.is_finished() && !report.is_clean());
    assert_eq!((report.performed, report.failed), (300, 0));
    let [honest, liar, other] = <[_; 3]>::try_from(report.tokens.clone()).unwrap();
    assert_eq!((honest.wrong, other.wrong), (Some(0), Some(0)));
    assert_eq!(liar.wrong, Some(liar.served / 10));
    assert_eq!(Some(report.wrong), liar.wrong);
    let [failure] = <[_; 1]>::try_from(report.failures.clone()).unwrap();
    assert_eq!(
        (failure.kind.as_str(), failure.count),
        ("wrong signature", report.wrong)
    );
    assert!(failure.examples.len() <= 5);
    for example in &failure.examples {
        assert_eq!(example.token, "hsm2");
        assert!(
            example.message.contains("CKR_SIGNATURE_INVALID"),
            "{example:?}"
        );
    }
    keeps_schema(&report);
    let text = report.to_string();
    assert!(
        text.contains("times wrong signature") && text.contains("- hsm2: "),
        "{text}"
    );
    fits_80_columns(&text);
    assert!(report.html().contains("What went wrong"));
}

#[test]
fn a_token_that_fails_is_named_and_the_failures_add_up_over_runs() {
    let folder = folder();
    let mut signers = signers(2);
    signers[0] = Arc::new(Signer {
        fails_every: 20,
        ..Signer::new()
    });
    let options = options(signers, folder.path(), 400);
    until(&options, 1);
    let report = burn_in::run(&options, quiet()).unwrap();
    assert_eq!((report.performed, report.wrong), (400, 0));
    let failing = &report.tokens[0];
    assert_eq!(failing.failed, (failing.served + failing.failed) / 20);
    assert_eq!(
        (report.failed, report.tokens[1].failed),
        (failing.failed, 0)
    );
    let failure = &report.failures[0];
    assert_eq!(
        (failure.kind.as_str(), failure.count),
        ("CKR_DEVICE_ERROR", report.failed)
    );
    assert!(
        failure
            .examples
            .iter()
            .all(|example| example.token == "hsm1")
    );
    keeps_schema(&report);
}

/// A token that is away does not use up the tests: its callers wait, and notice an interruption.
#[test]
fn a_dead_token_is_asked_slowly() {
    let folder = folder();
    let dead = Arc::new(Signer {
        fails_every: 1,
        ..Signer::new()
    });
    let options = options(vec![dead], folder.path(), 1_000_000);
    let stop = AtomicBool::new(false);
    let progress = |progress: &Progress| {
        let over = progress.elapsed > Duration::from_secs(1);
        stop.store(over, Ordering::Relaxed);
    };
    let control = RunControl {
        stop: &stop,
        progress: &progress,
    };
    let report = burn_in::run(&options, control).unwrap();
    assert!((4..200).contains(&report.failed), "{}", report.failed);
    assert_eq!(report.performed, report.failed);
    fits_80_columns(&report.to_string());
}
