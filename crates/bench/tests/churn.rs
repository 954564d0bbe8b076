//! The runs of the churn measurement, with services in memory.

mod common;

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{fits_80_columns, keeps_schema};
use hsmux_bench::churn::{ChurnReport, Keyring, Part, runs};
use hsmux_token::Result;

#[test]
fn the_published_runs_come_first() {
    let all = runs(10, &[1000, 5000]);
    assert_eq!(all.len(), 12);
    assert_eq!(
        (all[2].number, all[2].keys, all[2].restarted),
        (3, 52, false)
    );
    assert!(all[3].restarted && all[3].published == Some(12_930.80));
    assert_eq!(
        (all[11].number, all[11].keys, all[11].published),
        (12, 5000, None)
    );
    assert_eq!(runs(2, &[]).len(), 2);
}

/// Counts keys.
struct Counted(Arc<AtomicUsize>);

impl Keyring for Counted {
    fn add(&mut self, _: &str) -> Result<()> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        self.0.fetch_sub(1, Relaxed);
        Ok(())
    }
}

/// The part's answers to these lines, and the number of keys after that.
fn told(lines: &str) -> (String, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let part = Part::Keys(Box::new(Counted(Arc::clone(&count))));
    let mut said = Vec::new();
    // An unknown command ends it.
    let _ = part.serve(BufReader::new(lines.as_bytes()), &mut said);
    (String::from_utf8(said).unwrap(), count.load(Relaxed))
}

#[test]
fn a_part_changes_keys_as_it_is_told() {
    // The key in use is created first.
    assert_eq!(told(""), ("{\"Ok\":null}\n".into(), 1));
    assert_eq!(told("keys 51\n").1, 52);
    assert_eq!(told("keys 51\nkeys 3\n").1, 4);
    let (said, left) = told("keys 2\nchange 0\nstop\n");
    assert_eq!(left, 3);
    assert_eq!(said.lines().count(), 4, "{said}");
    assert_eq!(told("load 1 16\nkeys 7\n").1, 1);
}

/// A report that survives a round trip.
fn report() -> ChurnReport {
    let found = |ratio: f64, failed: u64| {
        serde_json::json!({
            "per_second": 1000.0 * ratio, "ratio": ratio, "failed": failed,
            "error": (failed > 0).then_some("503 Service Unavailable: <sealed>"),
            "longest_us": 1500.0, "turns": [[1000.0 * ratio, 1000.0]],
        })
    };
    let rows: Vec<_> = runs(3, &[1000])
        .iter()
        .map(|run| {
            let mut row = serde_json::to_value(run).unwrap();
            row["published_ratio"] = run.published.map(|rate| rate / 12_916.0).into();
            row["found"] = vec![found(0.27, 0), found(1.01, u64::from(run.number / 4))].into();
            row
        })
        .collect();
    let head = serde_json::json!({
        "schema": hsmux_bench::SCHEMA, "command": "churn", "measured_at": "2026-01-01T00:00:00Z",
        "machine": hsmux_bench::Machine::this(), "callers": 16, "payload": 256, "settle_s": 2.0,
        "ways": ["bare old", "broker, old"], "rows": rows, "interrupted": false,
    });
    serde_json::from_value(head).unwrap()
}

#[test]
fn the_report_has_the_published_beside_the_measured() {
    let report = report();
    keeps_schema(&report);
    let text = report.to_string();
    for part in [
        "published",
        "bare old",
        "0.27",
        "1.01",
        "16 callers",
        "run 4, broker, old: 503",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fits_80_columns(&text);
    let page = report.html();
    assert!(page.contains("<svg") && page.contains("broker, old") && !page.contains("<sealed>"));
}
