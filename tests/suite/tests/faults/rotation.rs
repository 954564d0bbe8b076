//! PIN rotation that is interrupted half-way, and continued.

use std::fs;
use std::os::unix::fs::symlink;

use hsmux_suite::{Caller, PATIENCE, Process, Rig, Setup, StandIn, running, until};
use hsmux_token::ck::{CKR_DEVICE_ERROR, CKR_PIN_INVALID, CKR_PIN_LEN_RANGE};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const LABELS: [&str; 3] = ["a", "b", "c"];

/// A rotation in which `b` dies at this moment, and then the daemon; started again.
fn broken_off(moment: &str, with_the_daemon: bool) -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b", "c"]);
    rig.start();
    tokens.set("b", &format!("crash_in_set_pin = \"{moment}\""));
    rig.hsmux("pin rotate").fails().says("b");
    tokens.set("b", "");
    if with_the_daemon {
        rig.kill();
        rig.start_daemon();
    }
    Caller::open(&rig).ok("sign", json!({}));
    (rig, tokens)
}

/// A continued rotation finds out whether the token has the old or the new PIN, with one wrong try at most.
#[test]
fn interrupted_and_continued() {
    for (moment, daemon) in [
        ("before", false),
        ("after", false),
        ("before", true),
        ("after", true),
    ] {
        let (mut rig, tokens) = broken_off(moment, daemon);
        rig.hsmux("pin rotate").ok();
        // What counts is what the next start finds: the PIN files and the tokens agree.
        rig.stop();
        rig.start();
        Caller::open(&rig).ok("sign", json!({}));
        for label in ["a", "b", "c"] {
            let shown = tokens.pins_shown(label);
            let wrong = shown
                .iter()
                .filter(|line| line.contains(" user wrong "))
                .count();
            let most = usize::from(label == "b");
            assert!(wrong <= most, "{moment}, {daemon}: {label}: {shown:?}");
        }
        rig.stop();
    }
}

/// These codes are for nothing but the new PIN.
#[test]
fn a_new_pin_that_a_token_does_not_take_leaves_the_old_one_right() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.start();
    for code in [CKR_PIN_LEN_RANGE, CKR_PIN_INVALID] {
        tokens.set("b", &format!("set_pin_error = {code}"));
        rig.hsmux("pin rotate").fails().says("CKR_PIN_");
        tokens.set("b", "");
        rig.stop();
        rig.start();
        Caller::open(&rig).ok("sign", json!({}));
    }
    rig.hsmux("pin rotate").ok();
}

#[test]
fn a_rotation_that_is_repeated_in_vain_costs_one_try() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a", "b"]);
    rig.start();
    tokens.set("b", &format!("set_pin_error = {CKR_DEVICE_ERROR}"));
    for _ in 0..4 {
        rig.hsmux("pin rotate").fails().says("b");
    }
    let shown = tokens.pins_shown("b");
    let wrong = shown.iter().filter(|line| line.contains(" user wrong "));
    assert!(wrong.count() <= 1, "{shown:?}");
}

/// The text of a file in the rig's folder, if the file exists.
fn text(rig: &Rig, name: &str) -> Option<String> {
    let text = fs::read_to_string(rig.path(name)).ok()?;
    Some(text.trim_end().to_owned())
}

/// `hsmux pin rotate` up to the moment in which this token changes its PIN; there the daemon is killed. The module
/// works in a process of its own: it dies, too, or comes to the end of its call.
fn kill_in_rotation(rig: &mut Rig, tokens: &mut StandIn, label: &str, moment: &str, dies: bool) {
    let hung = tokens.hung_calls(label).len();
    tokens.set(label, &format!("hang_in_set_pin = \"{moment}\""));
    let mut rotation = Process::start("rotation", &rig.path(""), rig.hsmux("pin rotate"));
    let (module, _) = until("the module works", PATIENCE, || {
        tokens.hung_calls(label).get(hung).cloned()
    });
    rig.kill();
    assert!(!rotation.wait().success());
    if dies {
        let pid = Pid::from_raw(module.cast_signed()).expect("a process");
        kill_process(pid, Signal::KILL).expect("kill the module");
    }
    tokens.set(label, "");
    until("the module's end", PATIENCE, || {
        (!running(module)).then_some(())
    });
}

/// The PIN of each token, and how many it was shown.
fn pins(tokens: &StandIn) -> [(String, usize); 3] {
    LABELS.map(|label| (tokens.pin(label), tokens.pins_shown(label).len()))
}

/// Whatever PIN a token has is in a file.
fn no_pin_is_lost(rig: &Rig, tokens: &StandIn) {
    for label in LABELS {
        let files = ["pin", "pin.next"].map(|end| text(rig, &format!("{label}.{end}")));
        let there = files.contains(&Some(tokens.pin(label)));
        assert!(there, "the PIN of {label} is lost");
    }
}

/// The rotation that was broken off is repeated, and through.
fn go_on(rig: &Rig, through: &[&str]) {
    until("every member was tried", PATIENCE, || {
        let tried = ["serving", "parked"].map(|state| rig.members_in(state).len());
        (tried.iter().sum::<usize>() == LABELS.len()).then_some(())
    });
    let rotated = rig.hsmux("pin rotate").ok();
    if !through.is_empty() {
        let left = format!("{}: left as they are", through.join(", "));
        rotated.says(&left);
    }
    rig.wait_for_members(LABELS.len());
}

/// At whatever moment the daemon dies: the PIN of every token is on disk; repeating the rotation gives new PINs to
/// those that have none yet, and no others; and no token is shown a wrong one, but where nobody knows that it has the
/// new one, for its module died right after the change.
#[test]
fn killed_at_any_moment_of_it() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &LABELS);
    rig.start();
    let moments = ["before", "after"].map(|moment| [true, false].map(|dies| (moment, dies)));
    for (moment, dies) in moments.into_iter().flatten() {
        for (place, label) in LABELS.into_iter().enumerate() {
            let old = pins(&tokens);
            kill_in_rotation(&mut rig, &mut tokens, label, moment, dies);
            no_pin_is_lost(&rig, &tokens);
            let killed = pins(&tokens);
            rig.start_daemon();
            go_on(&rig, &LABELS[..place]);
            for (at, name) in LABELS.into_iter().enumerate() {
                let case = format!("{name}, killed in {label}, {moment}, {dies}");
                let pin = tokens.pin(name);
                assert_eq!(
                    text(&rig, &format!("{name}.pin")).as_ref(),
                    Some(&pin),
                    "{case}"
                );
                assert!(!rig.path(&format!("{name}.pin.next")).exists(), "{case}");
                assert_ne!(pin, old[at].0, "{case}");
                assert!(at >= place || pin == killed[at].0, "{case}: twice");
                let shown = &tokens.pins_shown(name)[old[at].1..];
                let wrong = shown.iter().filter(|line| line.contains(" user wrong "));
                let unknown = at == place && moment == "after" && dies;
                assert!(wrong.count() <= usize::from(unknown), "{case}: {shown:?}");
                let last = shown.last().expect("a login");
                assert!(
                    last.contains(" user right "),
                    "the counter is full: {case}: {shown:?}"
                );
            }
        }
    }
    Caller::open(&rig).ok("sign", json!({}));
    // Once it is through, it gives new ones to all.
    let before = pins(&tokens);
    rig.hsmux("pin rotate").ok().never_says("left as they are");
    for (label, (pin, _)) in LABELS.iter().zip(before) {
        assert_ne!(tokens.pin(label), pin);
    }
}

/// By its name one member's PIN changes, and with it that of whoever shares the file.
#[test]
fn members_that_share_a_file_get_a_new_pin_together() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", &LABELS);
    fs::remove_file(rig.path("b.pin")).unwrap();
    symlink("a.pin", rig.path("b.pin")).unwrap();
    rig.start();
    rig.hsmux("pin rotate a").ok().says("a, b: new PIN");
    let [a, b, c] = LABELS.map(|label| tokens.pin(label));
    assert_eq!(text(&rig, "a.pin").as_ref(), Some(&a));
    assert_eq!((a == b, c.as_str()), (true, StandIn::PIN));
    rig.stop();
    rig.start();
}
