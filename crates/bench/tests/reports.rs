//! The commands' reports: figures, tables, JSON by the schema, and the page.

mod common;

use std::time::Duration;

use common::{Signer, fits_80_columns, keeps_schema, measured, options, quiet};
use hsmux_bench::compare::{self, Bound, Goal, Variant};
use hsmux_bench::{BenchKey, LoadModel, Measurement, Until, mechanism, sign};
use hsmux_token::Uri;

#[test]
fn signatures_are_made_checked_and_reported() {
    let options = options(Signer::new(), 4, 200);
    let report = sign::run(&options, quiet()).unwrap();
    let found = &report.measurement;
    assert_eq!(
        (found.ops, found.verified, found.failed, found.wrong),
        (200, 200, 0, 0)
    );
    assert_eq!(
        (report.mechanism.as_str(), report.data_len, report.key.bits),
        ("CKM_ECDSA", 32, 256)
    );
    let json = keeps_schema(&report);
    let back: sign::SignReport = serde_json::from_value(json).unwrap();
    assert_eq!(back.measurement.ops, 200);
    let text = report.to_string();
    for part in [
        "CKM_ECDSA by EC key of 256 bits",
        "p99.9",
        "peak memory",
        "cloudhsm-v2",
        "verified    200",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fits_80_columns(&text);
}

#[test]
fn lies_and_failures_are_found() {
    let signer = Signer {
        lies_every: 10,
        fails_every: 7,
        ..Signer::new()
    };
    let report = sign::run(&options(signer, 2, 140), quiet()).unwrap();
    let found = &report.measurement;
    assert_eq!((found.failed, found.wrong, found.verified), (20, 12, 108));
    assert!(
        report
            .to_string()
            .contains("20 times: C_Sign: CKR_DEVICE_ERROR")
    );
    keeps_schema(&report);
}

#[test]
fn a_run_in_which_all_fails_is_still_a_report() {
    let mut options = options(
        Signer {
            fails_every: 1,
            ..Signer::new()
        },
        2,
        10,
    );
    options.load = LoadModel::Open {
        per_second: 1000.0,
        workers: 2,
    };
    let report = sign::run(&options, quiet()).unwrap();
    assert_eq!((report.measurement.ops, report.measurement.failed), (0, 10));
    keeps_schema(&report);
    fits_80_columns(&report.to_string());
}

#[test]
fn keys_and_mechanisms_are_found_by_name_or_refused_by_name() {
    let signer = Signer::new();
    let uri: Uri = "pkcs11:object=web;type=private".parse().unwrap();
    assert_eq!(
        BenchKey::find(&signer, Some(&uri)).unwrap().about.label,
        "web"
    );
    let uri: Uri = "pkcs11:object=mail".parse().unwrap();
    let missing = BenchKey::find(&signer, Some(&uri)).unwrap_err().to_string();
    assert!(
        missing.contains("memory") && missing.contains("object=mail"),
        "{missing}"
    );
    assert_eq!(
        mechanism("sha256-rsa-pkcs-pss").unwrap().name(),
        "CKM_SHA256_RSA_PKCS_PSS"
    );
    assert!(
        mechanism("aes-gcm")
            .unwrap_err()
            .to_string()
            .contains("aes-gcm")
    );
    let mut options = options(signer, 1, 1);
    options.mechanism = Some(mechanism("sha256-rsa-pkcs").unwrap());
    let refused = sign::run(&options, quiet()).unwrap_err().to_string();
    assert!(
        refused.contains("CKM_SHA256_RSA_PKCS is not for EC keys"),
        "{refused}"
    );
    options.mechanism = Some(mechanism("ecdsa-sha384").unwrap());
    assert_eq!(
        sign::run(&options, quiet()).unwrap().measurement.verified,
        1
    );
}

#[test]
fn variants_take_turns_and_are_judged_by_their_ratio() {
    let order = std::cell::RefCell::new(Vec::new());
    let variant = |name: &'static str, per_second: f64, p50: f64| {
        let order = &order;
        Variant::new(name, move || {
            order.borrow_mut().push(name);
            // The machine slows down with each round; ratios do not.
            let drift = order.borrow().len() as f64 / 2.0;
            Ok(measured(per_second / drift.ceil(), p50))
        })
    };
    let goal = |of: &str, bound| Goal {
        of: of.into(),
        against: "slow".into(),
        bound,
    };
    let goals = [
        goal("fast", Bound::RateRatioAtLeast(1.5)),
        goal("fast", Bound::RateRatioAtLeast(90.0)),
        goal("fast", Bound::AddedMedianAtMost(40.0)),
        goal("fast", Bound::AddedMedianAtMost(39.0)),
        goal("fast", Bound::RateRatioWithin(2.1)),
        goal("fast", Bound::RateRatioWithin(1.9)),
        goal("fast", Bound::TimeRatioAtMost(1.0)),
        goal("fast", Bound::TimeRatioAtMost(0.9)),
        goal("fast", Bound::ServerTimeRatioAtMost(1.09)),
        goal("fast", Bound::ServerTimeRatioAtMost(1.07)),
        goal("absent", Bound::RateRatioAtLeast(1.0)),
    ];
    let variants = vec![variant("slow", 100.0, 500.0), variant("fast", 300.0, 540.0)];
    let report = compare::run("speeds", variants, &goals, 3, |_, _| ()).unwrap();
    assert_eq!(
        *order.borrow(),
        ["slow", "fast", "fast", "slow", "slow", "fast"]
    );
    let reached: Vec<bool> = report.figures.iter().map(|figure| figure.reached).collect();
    assert_eq!(reached, [true, false].repeat(5));
    assert!(!report.reached());
    let ratio = &report.figures[0];
    assert_eq!(
        (ratio.min, ratio.value, ratio.max),
        (Some(3.0), Some(3.0), Some(3.0))
    );
    keeps_schema(&report);
    let text = report.to_string();
    assert!(text.contains("MISSED") && text.contains("reached"));
    fits_80_columns(&text);
}

#[test]
fn a_variant_that_fails_has_not_reached_its_goal() {
    let failing = || {
        let options = options(
            Signer {
                fails_every: 20,
                ..Signer::new()
            },
            1,
            40,
        );
        Ok(sign::run(&options, quiet())?.measurement)
    };
    let good = || Ok(measured(0.1, 100.0));
    let goals = [Goal {
        of: "failing".into(),
        against: "good".into(),
        bound: Bound::RateRatioAtLeast(0.1),
    }];
    let variants = vec![Variant::new("good", good), Variant::new("failing", failing)];
    let report = compare::run("faults", variants, &goals, 3, |_, _| ()).unwrap();
    assert_eq!(
        (report.variants[1].failed, report.figures[0].reached),
        (6, false)
    );
    assert!(report.figures[0].value > Some(1.0));
}

#[test]
fn what_is_compared_with_one_that_fails_has_not_reached_its_goal() {
    let failing = || {
        Ok(Measurement {
            failed: 1,
            ..measured(100.0, 100.0)
        })
    };
    let goals = [Goal {
        of: "good".into(),
        against: "failing".into(),
        bound: Bound::RateRatioAtLeast(1.0),
    }];
    let good = || Ok(measured(200.0, 100.0));
    let variants = vec![Variant::new("good", good), Variant::new("failing", failing)];
    let report = compare::run("faults", variants, &goals, 1, |_, _| ()).unwrap();
    assert_eq!(
        (report.figures[0].value, report.figures[0].reached),
        (Some(2.0), false)
    );
}

#[test]
fn an_interrupted_comparison_keeps_its_whole_rounds_and_reaches_nothing() {
    for (turns, whole) in [(3, 1), (1, 0)] {
        let turn = std::cell::Cell::new(0);
        let variant = |name: &'static str, per_second: f64| {
            let turn = &turn;
            Variant::new(name, move || {
                turn.set(turn.get() + 1);
                Ok(Measurement {
                    interrupted: turn.get() >= turns,
                    ..measured(per_second, 100.0)
                })
            })
        };
        let goals = [Goal {
            of: "fast".into(),
            against: "slow".into(),
            bound: Bound::RateRatioAtLeast(1.5),
        }];
        let variants = vec![variant("slow", 100.0), variant("fast", 300.0)];
        let report = compare::run("speeds", variants, &goals, 5, |_, _| ()).unwrap();
        assert_eq!(turn.get(), turns, "nothing more is measured");
        assert!(report.interrupted && !report.reached());
        assert_eq!(
            (report.rounds, report.variants[1].rounds.len()),
            (whole, whole)
        );
        keeps_schema(&report);
        let text = report.to_string();
        assert!(
            text.contains("interrupted") && !text.contains("NaN"),
            "{text}"
        );
    }
}

#[test]
fn an_elapsed_time_ends_a_run() {
    let mut options = options(Signer::new(), 2, 0);
    options.until = Until::Elapsed(Duration::from_millis(300));
    options.verify = false;
    let report = sign::run(&options, quiet()).unwrap();
    let elapsed = report.measurement.elapsed_s;
    assert!((0.3..0.6).contains(&elapsed), "{elapsed}");
    assert_eq!(report.measurement.verified, 0);
}
