//! The table of measurements.

use std::fs;

use hsmux_suite::{Process, Run};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::rig::Cluster;

fn measure(cluster: &Cluster, hsms: &str, time: &str) -> Run {
    let script = cluster.script("measure").env("KEYS", "ec-prime256v1");
    script.env("HSMS", hsms).env("TIME", time)
}

/// A busy machine takes half a second for the first handshakes of 60 users.
fn full(cluster: &Cluster) -> Run {
    measure(cluster, "0 1", "2s").env("FULL", "1")
}

/// The rows, or cells, in a file of the reports.
fn rows(cluster: &Cluster, file: &str, list: &str) -> Vec<Value> {
    let text = fs::read(cluster.reports().join(file)).expect(file);
    let report: Value = serde_json::from_slice(&text).expect(file);
    report[list].as_array().expect(list).clone()
}

/// When the runs of a row ended.
fn runs(row: &Value) -> Vec<&Value> {
    let runs = row["runs"].as_array().expect("runs").iter();
    runs.map(|run| &run["measured_at"]).collect()
}

/// Its cells are the published ones, with the key in a file and in a token, and each has its three runs.
#[test]
fn an_interrupted_table_goes_on_in_a_new_cluster() {
    let cluster = Cluster::new();
    let mut script = Process::start("script", cluster.0.path(), full(&cluster));
    script.wait_for("cell 2 of 8");
    script.signal(Signal::TERM);
    assert_eq!(script.wait().code(), Some(130));
    assert!(script.log().contains("goes on"), "{}", script.log());
    let before = rows(&cluster, "full.state", "cells");
    assert_eq!(runs(&before[0]).len(), 3);

    let done = full(&cluster).ok();
    done.never_says("cell 1 of 8").says("cell 8 of 8");
    let after = rows(&cluster, "full.json", "rows");
    assert_eq!(after.len(), 8, "{done}");
    for (at, row) in after.iter().enumerate() {
        let (hsms, module) = [(0, "key in a file"), (1, "softhsm")][at / 4];
        let cell = &row["cell"];
        assert_eq!(
            (&cell["hsms"], &cell["module"]),
            (&json!(hsms), &json!(module))
        );
        assert_eq!(row["published"]["hsms"], hsms, "{row}");
        assert_eq!(runs(row).len(), 3, "{row}");
    }
    for (before, after) in before.iter().zip(&after) {
        assert!(runs(after).starts_with(&runs(before)), "{before} {after}");
    }
}

/// As `make cluster` does it unless it is told otherwise: with cards, which take the published time for a signature.
#[test]
fn a_cell_with_a_card_comes_to_the_published_rate() {
    let cluster = Cluster::new();
    let done = measure(&cluster, "1", "3s").env("TOKENS", "cards").ok();
    done.says("cell 1 of 1").says("Done in");
    let cells = rows(&cluster, "matrix.json", "rows");
    assert_eq!(cells.len(), 1, "{done}");
    let (cell, found) = (&cells[0]["cell"], &cells[0]["runs"][0]["figures"]);
    assert_eq!(
        (&cell["hsms"], &cell["module"]),
        (&json!(1), &json!("opensc"))
    );
    assert_eq!(found["availability_pct"], 100.0, "{found}");
    let rate = |figures: &Value| figures["rate_per_s"].as_f64().expect("a rate");
    let (rate, published) = (rate(found), rate(&cells[0]["published"]["figures"]));
    // A card takes its time; a busy machine may take some more.
    let share = rate / published;
    assert!((0.5..1.5).contains(&share), "{rate}/s, not {published}/s");
    cluster.is_gone();
}
