//! Members, memory and time in a report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hsmux_bench::burn_in::{self, BurnInReport, MemberCounts, PoolCounts};
use hsmux_bench::{Progress, RunControl};

use crate::common::{Signer, fits_80_columns, keeps_schema};
use crate::{folder, options, signers};

/// The shares of members behind a pool come from the pool's counters, which restart with the daemon.
#[test]
fn members_behind_a_pool_have_their_share() {
    let folder = folder();
    let signer = Arc::new(Signer::new());
    let queries = Arc::new(AtomicU64::new(0));
    let mut options = options(vec![Arc::clone(&signer)], folder.path(), 300);
    let seen = Arc::clone(&queries);
    let member = |name: &str, served, failed| MemberCounts {
        name: name.into(),
        served,
        failed,
    };
    options.pool_counts = Some(Arc::new(move || {
        // 1000 before the run, then more, then those of another daemon.
        let members = match seen.fetch_add(1, Ordering::Relaxed) {
            0 => vec![member("hsm1", 1000, 5), member("hsm2", 2000, 0)],
            1 => return None,
            2 => vec![member("hsm1", 1100, 7), member("hsm2", 2010, 0)],
            _ => vec![member("hsm1", 50, 0), member("hsm2", 40, 1)],
        };
        let processes = vec![std::process::id()];
        Some(PoolCounts { members, processes })
    }));
    options.save_every = Duration::ZERO;
    let stop = AtomicBool::new(false);
    let progress =
        |_: &Progress| stop.store(queries.load(Ordering::Relaxed) >= 4, Ordering::Relaxed);
    let control = RunControl {
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
        let from = runs
            .last()
            .map_or(0.0, |report: &BurnInReport| report.elapsed_s);
        let progress = |progress: &Progress| {
            let over = progress.elapsed.as_secs_f64() > from + 0.5;
            stop.store(over, Ordering::Relaxed);
            assert!(progress.left.is_some() && progress.of == Some(100_000_000));
        };
        let control = RunControl {
            stop: &stop,
            progress: &progress,
        };
        runs.push(burn_in::run(&options, control).unwrap());
    }
    let [first, second] = <[_; 2]>::try_from(runs).unwrap();
    let own = |report: &BurnInReport| {
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
    let back: BurnInReport = serde_json::from_value(json).unwrap();
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
