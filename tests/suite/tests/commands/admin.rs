//! `hsmux token`, `pin`, `config`, `status`, `audit`, `doctor`.

use std::fs;

use hsmux_suite::{Caller, PATIENCE, Process, Program, Rig, SOFTHSM, Setup, SoftHsm, built, until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The exit code for wrong arguments or configuration, and for a daemon that is not there.
const USAGE: Option<i32> = Some(2);
const NO_DAEMON: Option<i32> = Some(4);

/// Else a user's half of a thousand files on each of two listeners were all of them.
#[test]
fn the_daemon_takes_all_the_files_that_it_may_have() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    let line = format!(
        "ulimit -Sn 200; exec {} serve",
        built(Program::Hsmux).display()
    );
    let daemon = Process::start("limited", &rig.path(""), rig.run("sh").arg("-c").arg(line));
    until("the daemon serves", PATIENCE, || {
        let status = rig.hsmux("status --check").finish();
        status.all().contains("1 of 1 members serve").then_some(())
    });
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.id())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = files.unwrap().split_whitespace().collect();
    assert_ne!(words[3], "200", "{limits}");
    assert_eq!(words[3], words[4], "{limits}");
}

#[test]
fn a_token_is_initialised_and_added() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.start();
    rig.write_pin("hsm2", &SoftHsm::pin("hsm2"));
    rig.write_pin("so", SoftHsm::SO_PIN);
    rig.hsmux(&format!(
        "token init --module {SOFTHSM} --label hsm2 --pin file:hsm2.pin --so-pin file:so.pin"
    ))
    .ok()
    .says("hsm2");
    rig.hsmux(&format!("token list --module {SOFTHSM}"))
        .ok()
        .says("hsm1")
        .says("hsm2");
    rig.hsmux(&format!(
        "token add hsm2 --module {SOFTHSM} --uri pkcs11:token=hsm2 --pin-file hsm2.pin"
    ))
    .ok();
    rig.wait_for_members(2);
    rig.hsmux("token status hsm2").ok().says("SoftHSM");
    rig.hsmux("token remove hsm2 --forget").ok();
    rig.wait_for_members(1);
    let file = fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    assert!(!file.contains("token=hsm2"), "{file}");
}

#[test]
fn a_token_with_keys_is_not_erased_by_accident() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    rig.write_pin("so", SoftHsm::SO_PIN);
    let line = format!(
        "token init --module {SOFTHSM} --label hsm1 --uri pkcs11:token=hsm1 --pin file:hsm1.pin --so-pin file:so.pin"
    );
    let refused = rig.hsmux(&line).fails();
    assert_eq!(refused.code, USAGE, "{refused}");
    refused.says("--erase");
    rig.softhsm.tool("hsm1").arg("-O").ok().says("rsa");
}

#[test]
fn every_mistake_of_a_configuration_has_its_line() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    fs::write(
        rig.path("hsmux.toml"),
        "[pool]\nlable = \"web\"\npolicy = \"fastest\"\n\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"hsm1\"\n",
    )
    .unwrap();
    let check = rig.hsmux("config check").fails();
    assert_eq!(check.code, USAGE, "{check}");
    check
        .says("hsmux.toml:2")
        .says("label")
        .says("hsmux.toml:3")
        .says("least-loaded")
        .says("hsmux.toml:6")
        .says("/nowhere.so")
        .says("hsmux.toml:7");
    let serve = rig.hsmux("serve").fails();
    assert_eq!(serve.code, USAGE, "{serve}");
}

#[test]
fn the_example_is_a_good_configuration() {
    let rig = Rig::prepare(Setup::Daemon, 2);
    // In a folder without anything: what is not there yet is a warning.
    let new = rig.path("new");
    fs::create_dir(&new).unwrap();
    let file = new.join("hsmux.toml");
    let hsmux = |line: &str| rig.hsmux(&format!("--config {} {line}", file.display()));
    for example in ["config example", "config example --full"] {
        let example = rig.hsmux(example).ok().out;
        let wide = example.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None);
        fs::write(&file, &example).unwrap();
        if !example.contains("[broker]") {
            assert!(example.lines().count() < 40, "{example}");
            hsmux("config check").ok().says("HSM1_PIN");
        }
    }
    // And with its PINs it is a pool that serves.
    let example = rig.hsmux("config example").ok().out;
    fs::write(&file, example).unwrap();
    let pins = ["hsm1", "hsm2"].map(|label| pin_of(&rig, label));
    let [one, two] = &pins;
    let serve = hsmux("serve")
        .env("POOL_PIN", "example")
        .env("HSM1_PIN", one);
    let daemon = Process::start("example", &new, serve.env("HSM2_PIN", two));
    until("both members serve", PATIENCE, || {
        let status = hsmux("status").finish();
        (status.code == Some(0) && status.out.contains("2 of 2 members serve")).then_some(())
    });
    drop(daemon);
}

/// It runs, for its members may come; but it does not say that it serves.
#[test]
fn a_daemon_that_serves_nobody_says_what_is_missing() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.members[0].uri = "pkcs11:token=none".into();
    fs::remove_file(rig.path("pool.pin")).unwrap();
    rig.start_daemon();
    let daemon = rig.daemon.as_mut().unwrap();
    daemon.wait_for("serves nobody: no member is in service yet, and no listener has a PIN");
    assert!(
        !daemon.log().contains("the daemon serves"),
        "{}",
        daemon.log()
    );
}

#[test]
fn without_a_daemon_commands_say_so() {
    let rig = Rig::prepare(Setup::Daemon, 1);
    for command in ["status", "key list", "token list", "reload"] {
        let refused = rig.hsmux(command).fails();
        assert_eq!(refused.code, NO_DAEMON, "{refused}");
        refused.says("hsmux serve");
    }
}

#[test]
fn doctor_finds_nothing_in_a_good_setup_and_shows_no_pin() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    rig.hsmux("key generate ec:p256 --label web").ok();
    rig.hsmux("doctor").ok().says("nothing is wrong");
    rig.hsmux("token park hsm2").ok();
    rig.hsmux("doctor").fails().says("hsm2");
}

#[test]
fn pins_are_rotated_over_all_members() {
    let rig = Rig::new(Setup::Daemon);
    let before: Vec<_> = pins(&rig);
    rig.hsmux("pin rotate").ok();
    let after: Vec<_> = pins(&rig);
    for (old, new) in before.iter().zip(&after) {
        assert_ne!(old, new);
    }
    rig.wait_for_members(3);
    Caller::open(&rig).ok("sign", json!({}));
    // The tokens know the new ones.
    for (label, pin) in ["hsm1", "hsm2", "hsm3"].iter().zip(&after) {
        rig.run("pkcs11-tool")
            .args(&format!(
                "--module {SOFTHSM} --token-label {label} --login --pin {pin} -O"
            ))
            .ok();
    }
}

fn pins(rig: &Rig) -> Vec<String> {
    ["hsm1", "hsm2", "hsm3"]
        .map(|label| pin_of(rig, label))
        .to_vec()
}

fn pin_of(rig: &Rig, label: &str) -> String {
    let file = fs::read_to_string(rig.path(&format!("{label}.pin"))).unwrap();
    file.trim_end().to_owned()
}

/// Without `[daemon] pin`, applications log in with the PIN of the first member.
#[test]
fn a_rotated_pin_is_the_applications_too_where_they_share_it() {
    let mut rig = Rig::prepare(Setup::Daemon, 2);
    rig.config.daemon.clear();
    rig.start();
    let log_in = |pin: &str| json!({"label": "web", "pin": pin});
    let old = SoftHsm::pin("hsm1");
    let mut early = Caller::start(&rig);
    early.ok("open", log_in(&old));
    rig.hsmux("pin rotate")
        .ok()
        .says("applications log in with the PIN of hsm1")
        .says("[daemon] pin");
    let new = pin_of(&rig, "hsm1");
    assert_ne!(new, old);
    // Who is in stays in.
    early.ok("sign", json!({}));
    let mut late = Caller::start(&rig);
    late.ok("initialize", json!({}));
    let refused = late.ask("use", log_in(&old)).expect_err("the old PIN");
    assert_eq!(refused, 0xa0, "CKR_PIN_INCORRECT");
    late.ok("use", log_in(&new));
    late.ok("sign", json!({}));
}

#[test]
fn uses_of_keys_are_on_the_audit_trail_where_asked_for() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.config.module.push_str("\n[audit]\nkeys = true");
    rig.start();
    Caller::open(&rig).ok("sign", json!({}));
    // Uses of keys are written by a thread of their own, so that no signature waits for a disk.
    until("the trail is complete", PATIENCE, || {
        let lines = rig.trail();
        let has = |name: &str, value: &str| lines.iter().any(|line| line[name] == value);
        assert!(lines.iter().all(|line| line["uid"].is_u64()), "{lines:?}");
        (has("call", "C_Sign") && has("label", "ec")).then_some(())
    });
}

#[test]
fn a_reload_by_signal_is_on_the_audit_trail_however_it_ends() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.start();
    rig.reload();
    let line = until("the line of a reload", PATIENCE, || {
        let lines = rig.trail();
        lines.into_iter().find(|line| line["act"] == "reload")
    });
    assert_eq!(line["program"], "signal SIGHUP");
    assert_eq!(line["outcome"], "done");
    fs::write(rig.path("hsmux.toml"), "[pool]\nlable = \"web\"\n").unwrap();
    let daemon = rig.daemon.as_ref().unwrap();
    daemon.signal(Signal::HUP);
    until("the refused reload", PATIENCE, || {
        let text = fs::read_to_string(rig.path("state/audit.log")).ok()?;
        text.lines()
            .map(json_of)
            .find(|line| line["act"] == "reload" && line["outcome"] != "done")
            .filter(|line| line["outcome"].to_string().contains("hsmux.toml:2"))
    });
}

#[test]
fn a_pin_released_without_a_daemon_is_on_the_audit_trail() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    rig.stand_in("vendor", &["a"]);
    rig.write_pin("a", "9999");
    rig.start_daemon();
    until("the member is parked", PATIENCE, || {
        (rig.members_in("parked") == ["a"]).then_some(())
    });
    rig.stop();
    rig.hsmux("pin release a").ok();
    rig.hsmux("pin release nobody").fails();
    let lines = rig.trail();
    let released: Vec<_> = lines
        .iter()
        .filter(|line| line["act"] == "pin-release")
        .collect();
    assert_eq!(released.len(), 4, "{lines:?}");
    for (line, outcome) in released.iter().zip(["begun", "done", "begun"]) {
        assert_eq!(line["outcome"], outcome);
        assert_eq!(line["program"], "hsmux, without a daemon");
    }
    assert_eq!(released[1]["token"], "a");
    let failed = &released[3]["outcome"];
    assert!(failed.to_string().contains("nobody"), "{failed}");
}

/// Initialising a token is on the trail before it begins and after it has succeeded or failed, with and without a daemon.
#[test]
fn a_token_that_is_initialised_is_on_the_audit_trail() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.write_pin("so", SoftHsm::SO_PIN);
    rig.write_pin("wrong", "wrong-so-pin");
    let init = |rig: &Rig, so_pin: &str, more: &str| {
        rig.hsmux(&format!(
            "token init --module {SOFTHSM} --pin file:hsm1.pin --so-pin file:{so_pin}.pin {more}"
        ))
    };
    init(&rig, "so", "--label new").ok();
    let erase = "--label newer --uri pkcs11:token=new --erase --yes";
    init(&rig, "so", erase).ok();
    let refused = "--label newest --uri pkcs11:token=newer --erase --yes";
    init(&rig, "wrong", refused).fails();
    rig.start();
    init(&rig, "so", "--label other").ok();

    let own = "hsmux, without a daemon";
    let mut lines = rig.trail();
    lines.retain(|line| line["act"] == "token-init");
    let failed = lines.remove(5);
    assert_ne!(failed["outcome"], "done");
    assert_eq!(
        (&failed["label"], &failed["program"]),
        (&"newest".into(), &own.into())
    );
    let told = lines.iter().map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        (text("label"), text("outcome"), text("program"))
    });
    let expected = [
        ("new", "begun", own),
        ("new", "done", own),
        ("newer", "begun", own),
        ("newer", "done", own),
        ("newest", "begun", own),
        ("other", "begun", "hsmux"),
        ("other", "done", "hsmux"),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert!(lines[0]["erased"].is_null(), "{lines:?}");
    assert!(lines[3]["erased"].is_string(), "{lines:?}");
    let all = format!("{failed}{lines:?}");
    for secret in [SoftHsm::SO_PIN, &SoftHsm::pin("hsm1"), "wrong-so-pin"] {
        assert!(!all.contains(secret), "{all}");
    }
}

fn json_of(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn one_daemon_for_one_state_folder() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    rig.start();
    rig.hsmux("serve").fails().says("pid");
    rig.wait_for_members(1);
}
