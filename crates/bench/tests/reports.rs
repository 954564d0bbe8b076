//! The commands' reports: figures, tables, JSON by the schema, and the page.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Signer, fits_80_columns, keeps_schema, quiet};
use hsmux_bench::compare::{self, Bound, Goal, Variant};
use hsmux_bench::{
    BenchKey, Latency, LoadModel, Measurement, Process, Until, mechanism, scale, sign,
};
use hsmux_token::{Token, Uri};

fn options(signer: Signer, concurrency: usize, count: u64) -> sign::SignOptions {
    let token: Arc<dyn Token> = Arc::new(signer);
    let key = BenchKey::find(&*token, None).unwrap();
    let mut options = sign::SignOptions::new(token, "memory", key, concurrency, count);
    options.warm_up = Duration::ZERO;
    options
}

/// A real measurement with replaced rate and median, so that computed values are known.
fn measured(per_second: f64, p50: f64) -> Measurement {
    let options = options(Signer::new(), 1, 20);
    let found = sign::run(&options, quiet()).unwrap().measurement;
    let latency = found.latency_us.unwrap();
    let process = |cpu_s| Process {
        pid: 1,
        name: "one".into(),
        cpu_s,
        cpu_percent: 0.0,
        peak_memory_bytes: 0,
    };
    Measurement {
        per_second,
        elapsed_s: 1.0,
        // The measuring process, and a server with CPU time equal to its latency.
        processes: vec![process(1e3), process(p50)],
        latency_us: Some(Latency { p50, ..latency }),
        ..found
    }
}

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
fn scaling_has_efficiency_and_a_page_of_its_own() {
    let options = scale::ScaleOptions {
        title: "pool \"web\" <test>".into(),
        members: vec![4, 1, 2],
        published: None,
    };
    let rates = [10.0, 19.0, 0.0, 36.0];
    let mut measure = |members: usize| Ok(measured(rates[members - 1], 100.0));
    let mut report = scale::run(&options, &mut measure).unwrap();
    let steps = report
        .steps
        .iter()
        .map(|step| (step.members, step.efficiency));
    assert_eq!(steps.collect::<Vec<_>>(), [(1, 1.0), (2, 0.95), (4, 0.9)]);
    report.events.push(scale::ScaleEvent {
        members: 4,
        at_s: 0.1,
        what: "a worker is killed".into(),
    });
    keeps_schema(&report);
    fits_80_columns(&report.to_string());

    let page = report.html();
    let charts = page.matches("<svg").count();
    assert_eq!((charts, page.matches("</svg>").count()), (3, 3));
    for part in [
        "linear",
        "published: SmartCard-HSM, rsa-2048",
        "a worker is killed",
        "prefers-color-scheme",
        "pool &quot;web&quot; &lt;test&gt;",
        "var(--measured)",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The SVG namespace is a name that nothing fetches.
    assert!(page.matches("http").count() == page.matches("http://www.w3.org/2000/svg").count());
    assert!(!page.contains("#0102"), "a colour without a role");
    if let Some(path) = std::env::var_os("HSMUX_KEEP_PAGE") {
        std::fs::write(path, page).unwrap();
    }
}

#[test]
fn scaling_has_the_published_curve_beside_it() {
    let options = scale::ScaleOptions {
        title: "cards".into(),
        members: vec![1, 2, 3, 8],
        published: Some("rsa-2048"),
    };
    let mut measure = |members: usize| Ok(measured(1.5 * members as f64, 658_000.0));
    let report = scale::run(&options, &mut measure).unwrap();
    let published = report.steps.iter().map(|step| step.published_per_second);
    assert_eq!(
        published.collect::<Vec<_>>(),
        [Some(1.5), Some(3.0), None, Some(12.1)]
    );
    let json = keeps_schema(&report);
    assert_eq!(json["published"], "rsa-2048");
    let text = report.to_string();
    for part in ["of published", "99.2 %", "32.8/s*", "are 41.0 per second"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fits_80_columns(&text);
    let page = report.html();
    assert!(page.contains("Beside the published") && page.contains("are 41.0 per second"));
    // Once in the chart of speed-up, once in that of throughput.
    assert_eq!(
        page.matches("published: SmartCard-HSM, rsa-2048").count(),
        2
    );
}

#[test]
fn scaling_refuses_what_makes_no_sense_and_says_where_it_failed() {
    let none = scale::ScaleOptions {
        title: String::new(),
        members: vec![0],
        published: None,
    };
    scale::run(&none, &mut |_| unreachable!()).unwrap_err();
    let two = scale::ScaleOptions {
        title: String::new(),
        members: vec![2],
        published: None,
    };
    let failed = scale::run(&two, &mut |_| Err(hsmux_token::Error::lost("gone"))).unwrap_err();
    assert!(failed.to_string().contains("with 2 members"));
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
