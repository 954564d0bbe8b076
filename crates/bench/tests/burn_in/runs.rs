//! Interrupted and resumed runs: every test counts once; another subject is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hsmux_bench::burn_in::{self, BurnInOptions};
use hsmux_bench::{BenchKey, Progress, RunControl, mechanism};
use hsmux_token::Token;

use crate::common::{Signer, quiet};
use crate::{folder, options, signers, until};

#[test]
fn every_test_is_counted_once_over_all_runs() {
    let folder = folder();
    let slow = || Signer {
        takes: Duration::from_millis(1),
        ..Signer::new()
    };
    let signers: Vec<_> = (0..3).map(|_| Arc::new(slow())).collect();
    let options = options(signers.clone(), folder.path(), 6000);
    let mut last = 0;
    let mut elapsed = 0.0;
    for (run, point) in (1..).zip([1, 1500, 3000]) {
        let report = until(&options, point);
        assert!(!report.is_finished() && report.performed >= point);
        assert!(report.performed > last, "run {run} did nothing");
        assert!(report.elapsed_s > elapsed);
        assert_eq!(report.runs, run);
        (last, elapsed) = (report.performed, report.elapsed_s);
    }
    let report = burn_in::run(&options, quiet()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(
        (report.performed, report.tests, report.runs),
        (6000, 6000, 4)
    );
    // The tokens' own counts agree with the report.
    let served: Vec<u64> = report.tokens.iter().map(|token| token.served).collect();
    let signed = |signer: &Arc<Signer>| signer.signed.load(Ordering::Relaxed);
    assert_eq!(served, signers.iter().map(signed).collect::<Vec<_>>());
    assert_eq!(served.iter().sum::<u64>(), 6000);
    let rates: f64 = report.tokens.iter().map(|token| token.per_second).sum();
    assert!((rates / report.per_second - 1.0).abs() < 1e-9);

    // Nothing remains: the same report again, without use of a token.
    let again = burn_in::run(&options, quiet()).unwrap();
    assert_eq!((again.performed, again.runs), (6000, 4));
    assert_eq!(signers.iter().map(signed).sum::<u64>(), 6000);

    let anew = BurnInOptions {
        restart: true,
        tests: 100,
        ..options
    };
    let report = burn_in::run(&anew, quiet()).unwrap();
    assert_eq!((report.performed, report.runs), (100, 1));
}

/// A killed process leaves its last saved state.
#[test]
fn the_state_is_written_while_it_runs_and_can_be_gone_on_with() {
    let folder = folder();
    let options = options(signers(1), folder.path(), 100_000_000);
    let copy = folder.path().join("copy.json");
    let stop = AtomicBool::new(false);
    // At the first moment with a saved state.
    let progress = |_: &Progress| {
        if !stop.load(Ordering::Relaxed) && fs::copy(&options.state, &copy).is_ok() {
            stop.store(passed(&copy) > 0, Ordering::Relaxed);
        }
    };
    let control = RunControl {
        stop: &stop,
        progress: &progress,
    };
    let whole = burn_in::run(&options, control).unwrap();
    let passed = passed(&copy);
    assert!(passed > 0 && passed < whole.performed);
    assert!(written(&copy)["elapsed_s"].as_f64() > Some(0.0));
    let resumed = BurnInOptions {
        state: copy,
        tests: passed + 50,
        ..options
    };
    let report = burn_in::run(&resumed, quiet()).unwrap();
    assert_eq!((report.performed, report.runs), (passed + 50, 2));
    assert!(!folder.path().join("copy.json.new").exists());
}

fn written(state: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(state).unwrap()).unwrap()
}

fn passed(state: &Path) -> u64 {
    written(state)["counts"][0]["passed"].as_u64().unwrap()
}

#[test]
fn another_burn_in_is_refused_by_name() {
    let folder = folder();
    let make = || options(signers(2), folder.path(), 50);
    burn_in::run(&make(), quiet()).unwrap();
    let refused = |options: BurnInOptions, why: &str| {
        let error = burn_in::run(&options, quiet()).unwrap_err().to_string();
        assert!(
            error.contains("state.json") && error.contains(why),
            "{error}"
        );
    };
    let other = Signer {
        key: p256::ecdsa::SigningKey::from_slice(&[8; 32]).unwrap(),
        ..Signer::new()
    };
    let mut mail = make();
    mail.key = BenchKey::find(&other, None).unwrap();
    refused(mail, "its key is \"web\" (");
    let long = BurnInOptions {
        data_len: 20,
        ..make()
    };
    refused(long, "its length of data is 32, not 20");
    let hashed = BurnInOptions {
        mechanism: Some(mechanism("ecdsa-sha256").unwrap()),
        ..make()
    };
    refused(hashed, "its mechanism is CKM_ECDSA, not CKM_ECDSA_SHA256");
    let one = options(signers(1), folder.path(), 50);
    refused(one, "its tokens is hsm1, hsm2, not hsm1");

    fs::write(folder.path().join("state.json"), "{}").unwrap();
    refused(make(), "no state of a burn-in");
    let nowhere = BurnInOptions {
        state: folder.path().join("absent/state.json"),
        ..make()
    };
    refused(nowhere, "absent");
}

#[test]
fn what_makes_no_sense_is_refused_before_a_token_is_asked() {
    let folder = folder();
    let signers = signers(1);
    let refused = |change: fn(&mut BurnInOptions), why: &str| {
        let mut options = options(signers.clone(), folder.path(), 10);
        change(&mut options);
        let error = burn_in::run(&options, quiet()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(|options| options.tests = 0, "at least one");
    refused(|options| options.callers = 0, "at least one");
    refused(|options| options.tokens.clear(), "at least one");
    refused(
        |options| options.key.public = None,
        "verifies each signature",
    );
    refused(
        |options| options.mechanism = Some(mechanism("sha256-rsa-pkcs").unwrap()),
        "not for EC keys",
    );
    assert_eq!(signers[0].signed.load(Ordering::Relaxed), 0);
    assert_eq!(signers[0].info().label, "memory");
}
