//! The burn-in over tokens in memory: interrupted and resumed, with tokens that fail and that lie.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Signer, fits_80_columns, keeps_schema, quiet};
use hsmux_bench::burn_in::{self, Behind, Driven, Member, Options, Report};
use hsmux_bench::{Control, Key, Progress, cards, mechanism};
use hsmux_token::{Token, Uri};
use tempfile::TempDir;

/// Signatures made over `signers`, `hsm1`, `hsm2`, ..., with the state in `folder`.
fn options(signers: Vec<Arc<Signer>>, folder: &Path, tests: u64) -> Options {
    let key = Key::find(&*signers[0], None).unwrap();
    let driven = |(number, token): (u32, Arc<Signer>)| Driven {
        name: format!("hsm{number}"),
        token,
    };
    Options {
        tokens: (1..).zip(signers).map(driven).collect(),
        look: None,
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

/// Interrupted as soon as so many tests are performed.
fn until(options: &Options, performed: u64) -> Report {
    let stop = AtomicBool::new(false);
    let progress = |progress: &Progress| {
        if progress.done >= performed {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = Control {
        stop: &stop,
        progress: &progress,
    };
    burn_in::run(options, control).unwrap()
}

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
    // What the tokens themselves have seen is what the report says of each.
    let served: Vec<u64> = report.tokens.iter().map(|token| token.served).collect();
    let signed = |signer: &Arc<Signer>| signer.signed.load(Ordering::Relaxed);
    assert_eq!(served, signers.iter().map(signed).collect::<Vec<_>>());
    assert_eq!(served.iter().sum::<u64>(), 6000);
    let rates: f64 = report.tokens.iter().map(|token| token.per_second).sum();
    assert!((rates / report.per_second - 1.0).abs() < 1e-9);

    // Nothing is left to do: the report is there again, and no token is asked.
    let again = burn_in::run(&options, quiet()).unwrap();
    assert_eq!((again.performed, again.runs), (6000, 4));
    assert_eq!(signers.iter().map(signed).sum::<u64>(), 6000);

    let anew = Options {
        restart: true,
        tests: 100,
        ..options
    };
    let report = burn_in::run(&anew, quiet()).unwrap();
    assert_eq!((report.performed, report.runs), (100, 1));
}

/// A process that is killed leaves what it has written last.
#[test]
fn the_state_is_written_while_it_runs_and_can_be_gone_on_with() {
    let folder = folder();
    let options = options(signers(1), folder.path(), 100_000_000);
    let copy = folder.path().join("copy.json");
    let stop = AtomicBool::new(false);
    let progress = |progress: &Progress| {
        if progress.elapsed > Duration::from_millis(500) && !stop.load(Ordering::Relaxed) {
            fs::copy(&options.state, &copy).unwrap();
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = Control {
        stop: &stop,
        progress: &progress,
    };
    let whole = burn_in::run(&options, control).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&copy).unwrap()).unwrap();
    let passed = written["counts"][0]["passed"].as_u64().unwrap();
    assert!(passed > 0 && passed < whole.performed);
    assert!(written["elapsed_s"].as_f64() > Some(0.2));
    let resumed = Options {
        state: copy,
        tests: passed + 50,
        ..options
    };
    let report = burn_in::run(&resumed, quiet()).unwrap();
    assert_eq!((report.performed, report.runs), (passed + 50, 2));
    assert!(!folder.path().join("copy.json.new").exists());
}

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

/// A token that is away does not use up the tests: its callers wait, and hear an interruption.
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
    let control = Control {
        stop: &stop,
        progress: &progress,
    };
    let report = burn_in::run(&options, control).unwrap();
    assert!((4..200).contains(&report.failed), "{}", report.failed);
    assert_eq!(report.performed, report.failed);
    fits_80_columns(&report.to_string());
}

#[test]
fn another_burn_in_is_refused_by_name() {
    let folder = folder();
    let make = || options(signers(2), folder.path(), 50);
    burn_in::run(&make(), quiet()).unwrap();
    let refused = |options: Options, why: &str| {
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
    mail.key = Key::find(&other, None).unwrap();
    refused(mail, "its key is \"web\" (");
    let long = Options {
        data_len: 20,
        ..make()
    };
    refused(long, "its length of data is 32, not 20");
    let hashed = Options {
        mechanism: Some(mechanism("ecdsa-sha256").unwrap()),
        ..make()
    };
    refused(hashed, "its mechanism is CKM_ECDSA, not CKM_ECDSA_SHA256");
    let one = options(signers(1), folder.path(), 50);
    refused(one, "its tokens is hsm1, hsm2, not hsm1");

    fs::write(folder.path().join("state.json"), "{}").unwrap();
    refused(make(), "no state of a burn-in");
    let nowhere = Options {
        state: folder.path().join("absent/state.json"),
        ..make()
    };
    refused(nowhere, "absent");
}

/// The members behind a pool, by the pool's own counters, which begin anew with another daemon.
#[test]
fn members_behind_a_pool_have_their_share() {
    let folder = folder();
    let signer = Arc::new(Signer::new());
    let looks = Arc::new(AtomicU64::new(0));
    let mut options = options(vec![Arc::clone(&signer)], folder.path(), 300);
    let seen = Arc::clone(&looks);
    let member = |name: &str, served, failed| Member {
        name: name.into(),
        served,
        failed,
    };
    options.look = Some(Arc::new(move || {
        // 1000 before the run; then it grows; then the daemon is another one.
        let members = match seen.fetch_add(1, Ordering::Relaxed) {
            0 => vec![member("hsm1", 1000, 5), member("hsm2", 2000, 0)],
            1 => return None,
            2 => vec![member("hsm1", 1100, 7), member("hsm2", 2010, 0)],
            _ => vec![member("hsm1", 50, 0), member("hsm2", 40, 1)],
        };
        let processes = vec![std::process::id()];
        Some(Behind { members, processes })
    }));
    options.save_every = Duration::ZERO;
    let stop = AtomicBool::new(false);
    let progress = |_: &Progress| stop.store(looks.load(Ordering::Relaxed) >= 4, Ordering::Relaxed);
    let control = Control {
        stop: &stop,
        progress: &progress,
    };
    options.tests = 100_000_000;
    let report = burn_in::run(&options, control).unwrap();
    let found = report
        .tokens
        .iter()
        .map(|t| (t.name.as_str(), t.served, t.failed, t.wrong));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [("hsm1", 150, 2, None), ("hsm2", 50, 1, None)]
    );
    assert_eq!(report.fastest.as_deref(), Some("hsm1"));
    assert_eq!(report.slowest.as_deref(), Some("hsm2"));
    fits_80_columns(&report.to_string());
    keeps_schema(&report);
}

#[test]
fn the_report_has_memory_a_course_and_a_page() {
    let folder = folder();
    let options = options(signers(2), folder.path(), 100_000_000);
    let mut runs = Vec::new();
    for _ in 0..2 {
        let stop = AtomicBool::new(false);
        let from = runs.last().map_or(0.0, |report: &Report| report.elapsed_s);
        let progress = |progress: &Progress| {
            let over = progress.elapsed.as_secs_f64() > from + 0.5;
            stop.store(over, Ordering::Relaxed);
            assert!(progress.left.is_some() && progress.of == Some(100_000_000));
        };
        let control = Control {
            stop: &stop,
            progress: &progress,
        };
        runs.push(burn_in::run(&options, control).unwrap());
    }
    let [first, second] = <[_; 2]>::try_from(runs).unwrap();
    let own = |report: &Report| {
        let own = report
            .memory
            .iter()
            .find(|held| held.pid == std::process::id());
        own.unwrap().clone()
    };
    assert!(own(&first).samples.len() >= 4 && own(&first).peak_bytes > 1_000_000);
    assert!(own(&second).samples.len() > own(&first).samples.len());
    assert_eq!(own(&second).slope, None, "a second says nothing of an hour");
    assert!(second.course.len() > first.course.len());
    assert!(
        second
            .course
            .windows(2)
            .all(|pair| pair[0].at_s < pair[1].at_s)
    );

    let json = keeps_schema(&second);
    let back: Report = serde_json::from_value(json).unwrap();
    assert_eq!(
        (back.performed, back.memory),
        (second.performed, second.memory.clone())
    );
    let text = second.to_string();
    for part in [
        "tests performed",
        "in 2 runs",
        "not known: less than a minute",
        "hsm2",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fits_80_columns(&text);
    let page = second.html();
    assert_eq!(page.matches("<svg").count(), 3);
    for outside in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_a_token_is_asked() {
    let folder = folder();
    let signers = signers(1);
    let refused = |change: fn(&mut Options), why: &str| {
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

/// Virtual cards with copies of one key; a run that is interrupted goes on with the same key.
#[test]
fn cards_in_memory_are_burnt_in_and_one_that_lies_is_named() {
    let folder = folder();
    let kind = cards::key_kind("ec:brainpoolP256r1").unwrap();
    let open = || {
        let state = folder.path().join("cards");
        cards::virtual_cards(3, kind, &cards::Timing::None, &state).unwrap()
    };
    let burn = |tests, spoil: Option<usize>| {
        let cards = open();
        if let Some(at) = spoil {
            let order = "wrong-signature".parse::<hsmux_vcard::Order>().unwrap();
            cards[at].control.obey(order.only(Some(3), Some(0x68)));
        }
        let tokens: Vec<Driven> = cards.into_iter().map(|card| card.driven).collect();
        let key = Key::find(&*tokens[0].token, Some(&Uri::default())).unwrap();
        let options = Options {
            tokens,
            key,
            name: "cards".into(),
            ..options(signers(1), folder.path(), tests)
        };
        burn_in::run(&options, quiet()).unwrap()
    };
    let first = burn(60, None);
    assert!(first.is_clean(), "{first}");
    assert_eq!(
        first.reference.len(),
        5,
        "brainpoolP256r1 has published rows"
    );
    let second = burn(180, Some(1));
    assert_eq!((second.performed, second.runs), (180, 2));
    assert_eq!((second.wrong, second.tokens[1].wrong), (3, Some(3)));
    assert!(
        second.failures[0]
            .examples
            .iter()
            .all(|example| example.token == "VCBURN002")
    );
    assert!(second.tokens.iter().all(|token| token.served > 0));
    fits_80_columns(&second.to_string());
    keeps_schema(&second);
}

#[test]
fn a_key_of_a_card_has_a_name() {
    for bad in ["rsa", "rsa:x", "ec:P-255", "aes:128"] {
        let error = cards::key_kind(bad).unwrap_err().to_string();
        assert!(error.contains(bad), "{error}");
    }
}
