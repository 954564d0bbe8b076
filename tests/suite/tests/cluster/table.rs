//! The table of measurements.

use std::fs;

use hsmux_suite::{Process, Run};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::rig::Cluster;

fn measure(cluster: &Cluster) -> Run {
    let script = cluster.script("measure").env("FULL", "1");
    let script = script.env("KEYS", "ec-prime256v1").env("HSMS", "0 1");
    script.env("TIME", "300ms")
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
    let mut script = Process::start("script", cluster.0.path(), measure(&cluster));
    script.wait_for("cell 2 of 8");
    script.signal(Signal::TERM);
    assert_eq!(script.wait().code(), Some(130));
    assert!(script.log().contains("goes on"), "{}", script.log());
    let before = rows(&cluster, "full.state", "cells");
    assert_eq!(runs(&before[0]).len(), 3);

    let done = measure(&cluster).ok();
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
