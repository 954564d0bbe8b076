//! PINs are breakers: a PIN that was refused, or whose fate is unknown, is not tried again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hsmux_suite::{Caller, PATIENCE, Program, Rig, Setup, StandIn, built, until};
use hsmux_token::{Kind, Secret};
use hsmux_wire::{Answer, Call, VERSION};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::raw::{client, soon};
use crate::swarm::User;

const PIN_INCORRECT: u64 = 0xa0;
const FUNCTION_FAILED: u64 = 0x06;

/// A pool of `good` and `bad`, not started.
fn two() -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", &["bad", "good"]);
    (rig, tokens)
}

/// Everything that may want to log in, again and again: restarts, commands, a pool in a program.
fn try_everything(rig: &mut Rig) {
    for _ in 0..2 {
        rig.start_daemon();
        rig.wait_for_members(1);
        for command in ["status", "doctor", "token list", "key verify"] {
            rig.hsmux(command).finish();
        }
        Caller::open(rig).ok("sign", json!({}));
        rig.stop();
    }
    let daemon = std::mem::replace(&mut rig.config.module, "mode = \"embedded\"".to_owned());
    rig.write_config();
    Caller::open(rig).ok("sign", json!({}));
    rig.config.module = daemon;
}

#[test]
fn a_wrong_pin_of_an_application_touches_no_token() {
    let (mut rig, tokens) = two();
    rig.start();
    let before = tokens.pins_shown("good");
    let mut program = Caller::start(&rig);
    program.ok("open", json!({"label": "web"}));
    let wrong = |program: &mut Caller| program.ask("login", json!({"pin": "not-the-pin"}));
    // People mistype: three are free. Then no PIN is even looked at for a while, which each wrong one
    // doubles: at last it is longer than a slow machine needs for the next.
    for _ in 0..3 {
        assert_eq!(wrong(&mut program), Err(PIN_INCORRECT));
    }
    until("no PIN is looked at", PATIENCE, || {
        (wrong(&mut program) == Err(FUNCTION_FAILED)).then_some(())
    });
    assert_eq!(tokens.pins_shown("good"), before);
    // Throttled, not locked: the right one works after a while.
    until("the right PIN works", PATIENCE, || {
        program.ask("login", json!({"pin": rig.pin()})).ok()
    });
    program.ok("sign", json!({}));
}

#[test]
fn a_wrong_pin_is_tried_once_until_it_changes() {
    let (mut rig, tokens) = two();
    rig.write_pin("bad", "not-the-pin");
    rig.start_daemon();
    rig.wait_for_members(1);
    rig.hsmux("status").finish().says("bad").says("refused");
    rig.hsmux("doctor").fails().says("bad").says("PIN");
    rig.stop();
    try_everything(&mut rig);
    assert_eq!(
        tokens.pins_shown("bad").len(),
        1,
        "{:?}",
        tokens.pins_shown("bad")
    );

    rig.write_pin("bad", StandIn::PIN);
    rig.start();
    assert_eq!(tokens.pins_shown("bad").len(), 2);
}

#[test]
fn killed_in_the_middle_of_a_login() {
    let (mut rig, mut tokens) = two();
    tokens.set("bad", "hang_in_login = true");
    rig.start_daemon();
    rig.wait_for_members(1);
    until("the login has begun", PATIENCE, || {
        (tokens.pins_shown("bad").len() == 1).then_some(())
    });
    rig.kill_to_the_last();
    tokens.set("bad", "");
    try_everything(&mut rig);
    assert_eq!(
        tokens.pins_shown("bad").len(),
        1,
        "{:?}",
        tokens.pins_shown("bad")
    );

    // A person says that the PIN is right.
    rig.start_daemon();
    rig.hsmux("pin release bad").ok();
    rig.wait_for_members(2);
    assert_eq!(tokens.pins_shown("bad").len(), 2);
}

#[test]
fn a_worker_that_dies_in_the_login() {
    let (mut rig, mut tokens) = two();
    tokens.set("bad", "crash_in_login = true");
    try_everything(&mut rig);
    assert_eq!(
        tokens.pins_shown("bad").len(),
        1,
        "{:?}",
        tokens.pins_shown("bad")
    );
}

/// A general error may hide a wrong PIN that was counted, whatever the PIN was before.
#[test]
fn an_unknown_answer_to_a_pin_that_was_right() {
    let (mut rig, mut tokens) = two();
    rig.start();
    rig.stop();
    let shown = tokens.pins_shown("bad").len();
    tokens.set("bad", "login_error = 5");
    try_everything(&mut rig);
    assert_eq!(
        tokens.pins_shown("bad").len(),
        shown + 1,
        "{:?}",
        tokens.pins_shown("bad")
    );

    // A person says that the PIN is right.
    tokens.set("bad", "");
    rig.start_daemon();
    rig.hsmux("pin release bad").ok();
    rig.wait_for_members(2);
}

/// A PIN that has been right may log in again after a crash: a worker that was killed comes back.
#[test]
fn a_pin_that_was_right_survives_crashes() {
    let (mut rig, mut tokens) = two();
    rig.start();
    rig.kill();
    tokens.set("bad", "pin_flags = \"low\"");
    rig.start();
    rig.stop();

    let shown = tokens.pins_shown("bad").len();
    tokens.set("bad", "pin_flags = \"final\"");
    rig.start_daemon();
    rig.wait_for_members(1);
    rig.hsmux("doctor").fails().says("bad");
    assert_eq!(
        tokens.pins_shown("bad").len(),
        shown,
        "tried at the final try"
    );
}

#[test]
fn a_low_counter_means_no_attempt() {
    for flags in ["low", "final", "locked"] {
        let (mut rig, mut tokens) = two();
        tokens.set("bad", &format!("pin_flags = \"{flags}\""));
        try_everything(&mut rig);
        assert!(
            tokens.pins_shown("bad").is_empty(),
            "{flags}: {:?}",
            tokens.pins_shown("bad")
        );
    }
}

fn set_mode(rig: &Rig, file: &str, mode: u32) {
    fs::set_permissions(rig.path(file), Permissions::from_mode(mode)).unwrap();
}

/// The worker that comes after one that was killed needs the PIN again.
#[test]
fn a_members_pin_file_that_others_can_read_is_refused_at_the_next_login() {
    let (mut rig, tokens) = two();
    rig.start();
    let mut program = Caller::open(&rig);
    let shown = tokens.pins_shown("bad").len();
    set_mode(&rig, "bad.pin", 0o644);
    let check = rig.hsmux("config check").fails();
    check.says("bad.pin").says("chmod 600");
    // A member that serves goes on.
    rig.hsmux("reload").finish();
    rig.wait_for_members(2);
    assert_eq!(tokens.pins_shown("bad").len(), shown);

    let worker = Pid::from_raw(rig.workers()[0].cast_signed()).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    let reason = until("the file is refused", PATIENCE, || {
        let reason = rig.status()["members"][0]["reason"].take();
        let reason = reason.as_str()?.to_owned();
        reason.contains("chmod 600").then_some(reason)
    });
    assert!(reason.contains("bad.pin"), "{reason}");
    assert_eq!(rig.members_in("serving"), ["good"]);
    assert_eq!(tokens.pins_shown("bad").len(), shown);
    program.ok("sign", json!({}));

    set_mode(&rig, "bad.pin", 0o600);
    rig.wait_for_members(2);
    assert!(tokens.pins_shown("bad").len() > shown);
}

#[test]
fn a_listeners_pin_file_that_others_can_read_is_refused_at_a_reload() {
    let (mut rig, _tokens) = two();
    rig.start();
    let mut program = Caller::open(&rig);
    let newcomer = client(&rig, VERSION..=VERSION);
    let log_in = || {
        let pin = Secret::new(rig.pin().into_bytes());
        newcomer.call(Call::Login(pin), soon())
    };
    set_mode(&rig, "pool.pin", 0o644);
    let check = rig.hsmux("config check").fails();
    check.says("pool.pin").says("chmod 600");
    rig.hsmux("reload").ok().says("nobody can log in");
    let refused = log_in().expect_err("every user can read the PIN");
    let refused = refused.to_string();
    assert!(refused.contains("pool.pin"), "{refused}");
    assert!(refused.contains("chmod 600"), "{refused}");
    // Programs that have logged in go on.
    rig.wait_for_members(2);
    program.ok("sign", json!({}));

    set_mode(&rig, "pool.pin", 0o600);
    rig.hsmux("reload").ok();
    log_in().expect("nobody else can read it");
    program.ok("sign", json!({}));
}

#[test]
fn subordinate_ids_of_a_user_have_the_tries_of_one_user() {
    const SUBORDINATE: u32 = 300_000;
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    rig.stand_in("vendor", &["good"]);
    rig.write_config();
    fs::write(rig.path("subuid"), format!("alice:{SUBORDINATE}:65536\n")).unwrap();
    let serve = rig.run("unshare").args("--mount sh -c");
    let serve = serve.arg("mount --bind subuid /etc/subuid && exec \"$@\" serve");
    rig.start_by(serve.arg("sh").arg(built(Program::Hsmux)));
    for (path, mode) in [("", 0o755), ("hsmux.sock", 0o666)] {
        fs::set_permissions(rig.path(path), Permissions::from_mode(mode)).unwrap();
    }
    let refusal = |uid: u32| {
        let mut user = User::connect(&rig.path("hsmux.sock"), uid);
        match user.ask(&Call::Login(Secret::new(b"not-the-pin".to_vec()))) {
            Answer::Failed(error) => error.kind(),
            answer => panic!("{answer:?}"),
        }
    };
    let refusals: Vec<_> = (1..=8).map(|id| refusal(SUBORDINATE + id)).collect();
    assert_ne!(refusals[0], Kind::PinThrottled);
    assert!(refusals.contains(&Kind::PinThrottled), "{refusals:?}");
    // Whoever has no subordinate id goes on.
    User::log_in(&rig, 20_002);
    rig.stop();
}
