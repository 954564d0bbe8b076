//! `make demo`, with what was built for the tests and short measurements.

use std::fs;

use hsmux_suite::{PATIENCE, Program, Run, built, source, until};
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
        processes_in(&folder.path().display().to_string())
            .is_empty()
            .then_some(())
    });
}

/// The command lines of processes whose working folder is below this one.
fn processes_in(folder: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let inside = processes.filter(|process| {
        fs::read_link(process.path().join("cwd"))
            .is_ok_and(|cwd| cwd.display().to_string().starts_with(folder))
    });
    inside
        .filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok())
        .collect()
}
