//! `make demo`, with what was built for the tests and short measurements.

use std::fs;

use hsmux_suite::{PATIENCE, Program, Run, built, running_in, source, until};
use tempfile::TempDir;

#[test]
fn the_demo_loses_no_signature_and_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    let demo = Run::new(source().join("scripts/demo.sh"))
        .env("HSMUX_BUILT", built(Program::Hsmux).parent().unwrap())
        .env("TMPDIR", folder.path())
        .env("TIME", "2s")
        .limit(600)
        .ok();
    demo.says("Verified OK").says("no signature was lost");
    let report = folder.path().join("hsmux-demo-report.html");
    assert!(fs::read_to_string(report).unwrap().contains("<svg"));
    until("no process is left", PATIENCE, || {
        running_in(folder.path()).is_empty().then_some(())
    });
}
