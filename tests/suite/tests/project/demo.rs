//! `make demo`, with what was built for the tests and short measurements.

use std::fs;

use hsmux_suite::{Finished, PATIENCE, Program, Run, built, running, running_in, source, until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The demo, which makes its folder in this one.
fn run(folder: &TempDir, keep: &str) -> Finished {
    Run::new(source().join("scripts/demo.sh"))
        .env("HSMUX_BUILT", built(Program::Hsmux).parent().unwrap())
        .env("TMPDIR", folder.path())
        .env("TIME", "2s")
        .env("KEEP", keep)
        .limit(600)
        .ok()
}

fn lost_no_signature(demo: &Finished) {
    for key in [
        "Private Key Object; RSA",
        "Private Key Object; EC",
        "Secret Key Object; AES length 32",
    ] {
        demo.says(key);
    }
    demo.says("Verified OK").says("no signature was lost");
    let killed = "with 4 members, after ";
    let told = demo.out.lines().find(|line| line.starts_with(killed));
    let told = told.unwrap_or_else(|| panic!("no worker was killed\n{demo}"));
    assert!(told.contains(": the worker of hsm4 (pid "), "{told}");
}

fn until_no_process_is_left(folder: &TempDir) {
    until("no process is left", PATIENCE, || {
        running_in(folder.path()).is_empty().then_some(())
    });
}

#[test]
fn the_demo_loses_no_signature_and_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    lost_no_signature(&run(&folder, ""));
    let report = folder.path().join("hsmux-demo-report.html");
    assert!(fs::read_to_string(report).unwrap().contains("<svg"));
    until_no_process_is_left(&folder);
}

/// A daemon that the demo has left up; killed if a test fails before it ends.
struct Left(u32);

impl Drop for Left {
    fn drop(&mut self) {
        if running(self.0) {
            let process = Pid::from_raw(self.0.cast_signed()).expect("a process id");
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// What it prints for the next terminal is done, line by line.
#[test]
fn the_demo_leaves_the_pool_up_where_it_is_asked_to() {
    let folder = TempDir::new().unwrap();
    let demo = run(&folder, "1");
    let up = demo.out.split_once("The pool is up (daemon: process ");
    let (_, said) = up.expect("the pool is up");
    let (process, said) = said.split_once(')').expect("a process id");
    let daemon = Left(process.parse().expect("a process id"));
    lost_no_signature(&demo);
    assert!(running(daemon.0), "{demo}");
    let (how, end) = said.split_once("To end it").expect("how to end it");
    assert!(end.contains("hsmux stop"), "{demo}");
    let commands: Vec<_> = how.lines().filter(|line| line.starts_with("  ")).collect();
    Run::new("sh")
        .arg("-ec")
        .arg(commands.join("\n"))
        .ok()
        .says("hsm4")
        .says("Private Key Object")
        .says("verified");
    Run::new("sh")
        .arg("-ec")
        .arg(format!("{}\nhsmux stop", commands[0]))
        .ok();
    until("the daemon ends", PATIENCE, || {
        (!running(daemon.0)).then_some(())
    });
    until_no_process_is_left(&folder);
}
