//! The daemon is absent, dies, comes back; a program that uses the module stays the same one.

use std::fs;
use std::time::Duration;

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, running, until};
use serde_json::{Value, json};

/// CKR_DEVICE_REMOVED and what a session of a token that was away gives.
const GONE: &[u64] = &[0x32, 0x30, 0xe0, 0xb3];

/// A call that waits for nothing, on the busiest machine: the deadline of the pool is a minute.
pub const AT_ONCE: Duration = Duration::from_secs(2);

/// The longest of the calls that have just found nobody was as short as that.
#[track_caller]
fn at_once(program: &Caller) {
    let longest = program.longest_call();
    assert!(longest < AT_ONCE, "not at once: {longest:?}");
}

#[test]
fn absent_at_first() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    let mut program = Caller::start(&rig);
    program.ok("initialize", json!({}));
    at_once(&program);
    assert_eq!(program.ok("tokens", json!({})), json!([]));
    at_once(&program);
    let refused = program.ask("session", json!({"slot": 1}));
    let error = refused.expect_err("nobody is there");
    assert!(GONE.contains(&error), "CK_RV 0x{error:x}");
    at_once(&program);
    rig.start();
    until("the token is there", PATIENCE, || {
        let tokens = program.ask("tokens", json!({})).ok()?;
        (tokens[0]["label"] == "web").then_some(())
    });
    program.ok("use", json!({"label": "web", "pin": rig.pin()}));
    program.ok("sign", json!({}));
}

#[test]
fn absent_for_a_while() {
    let mut rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    program.ok("sign", json!({}));
    rig.kill();
    let error = program.ask("sign", json!({})).expect_err("nobody is there");
    assert!(GONE.contains(&error), "CK_RV 0x{error:x}");
    at_once(&program);
    rig.start();
    // The same session, logged in as before.
    program.ok("sign", json!({}));
}

/// Programs see errors while nobody is there and none before or after; each goes on by itself.
#[test]
fn killed_and_started_under_load() {
    let mut rig = Rig::new(Setup::Daemon);
    let mut programs = [Caller::open(&rig), Caller::open(&rig)];
    for program in &mut programs {
        program.ok("start_load", json!({"threads": 4}));
    }
    for _ in 0..2 {
        for program in &mut programs {
            // Failures left over from the time without a daemon end with the first signatures.
            signs_more(program, 50);
            let failed = failures(program);
            signs_more(program, 200);
            assert_eq!(
                failures(program),
                failed,
                "failed though the daemon is there"
            );
        }
        rig.kill();
        rig.start();
    }
    for program in &mut programs {
        signs_more(program, 50);
        let load = program.ok("stop_load", json!({}));
        let failed = load["failed"].as_object().expect("failures by name");
        assert!(!failed.is_empty(), "the daemon was away: {load}");
        // Also where the daemon had begun.
        let longest = load["longest_refusal"].as_f64();
        assert!(longest < Some(AT_ONCE.as_secs_f64()), "{load}");
        let gone = |name: &String| {
            GONE.iter()
                .any(|code| name.ends_with(&format!(" 0x{code:x}")))
        };
        assert!(failed.keys().all(gone), "{load}");
    }
}

fn failures(program: &mut Caller) -> Value {
    program.ok("progress", json!({}))["failed"].take()
}

/// Waits until so many more signatures have been made than there are now.
fn signs_more(program: &mut Caller, count: u64) {
    let signed = |program: &mut Caller| {
        program.ok("progress", json!({}))["signed"]
            .as_u64()
            .expect("a number")
    };
    let before = signed(program);
    until("more signatures", PATIENCE, || {
        (signed(program) >= before + count).then_some(())
    });
}

#[test]
fn stops_in_order_and_leaves_no_process() {
    let mut rig = Rig::new(Setup::Daemon);
    let workers = rig.workers();
    assert_eq!(workers.len(), 3, "{workers:?}");
    rig.stop();
    until("the workers have ended", PATIENCE, || {
        (!workers.iter().copied().any(running)).then_some(())
    });
}

#[test]
fn killed_it_takes_its_workers_along() {
    let mut rig = Rig::new(Setup::Daemon);
    let workers = rig.workers();
    rig.kill();
    until("the workers have ended", PATIENCE, || {
        (!workers.iter().copied().any(running)).then_some(())
    });
}

/// A PIN is looked at in 8 MiB of memory (Argon2), which an allocator may fail to use again.
#[test]
fn logins_leave_no_memory_behind() {
    let rig = Rig::new(Setup::Daemon);
    let daemon = rig.daemon.as_ref().expect("a daemon").id();
    let resident = || {
        let pages = fs::read_to_string(format!("/proc/{daemon}/statm")).expect("a running process");
        let resident = pages.split(' ').nth(1).expect("resident pages");
        resident.parse::<u64>().expect("a number") * rustix::param::page_size() as u64
    };
    let log_in = |times| {
        for _ in 0..times {
            rig.pkcs11_tool("--list-objects --type privkey").ok();
        }
    };
    log_in(3);
    let before = resident();
    log_in(10);
    let more = resident().saturating_sub(before);
    assert!(more < 24 << 20, "{more} bytes more after ten logins");
}
