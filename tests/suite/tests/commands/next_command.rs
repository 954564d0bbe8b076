//! An error names the command to try next.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use hsmux_suite::{Finished, Program, Rig, SOFTHSM, Setup, built, copy_program};

/// Runs each command, which fails, and sees that its error says the words beside it.
#[track_caller]
fn say(rig: &Rig, errors: &[(&str, &str)]) {
    for (line, next) in errors {
        let run = rig.hsmux(line).fails();
        assert!(next.contains("hsmux "), "{next:?} is no command");
        // Of its error, not of its result.
        assert!(run.err.contains(next), "{next:?} is not there\n{run}");
        assert!(!run.out.contains("nothing has changed"), "{run}");
    }
}

#[test]
fn without_a_configuration_or_a_daemon() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let start = "Start it with `hsmux serve`";
    say(
        &rig,
        &[
            ("status", start),
            ("key list", start),
            ("bench sign", start),
            ("node ca init --label ca", start),
            ("gateway", "hsmux config example --full"),
            ("broker", "hsmux config example --full"),
            ("audit", "hsmux serve"),
            ("audit verify", "hsmux serve"),
            ("haproxy config", "hsmux haproxy config HOST HOST"),
            ("token list --module none.so", "hsmux token list --module /"),
            ("token-auth list", "hsmux config example --full"),
            ("node", "hsmux node enroll"),
            (
                "token park nobody --config none.toml",
                "hsmux config example",
            ),
        ],
    );
    let good = fs::read_to_string(rig.path("hsmux.toml")).unwrap();
    fs::write(rig.path("hsmux.toml"), good + "\nnonsense = 1\n").unwrap();
    say(
        &rig,
        &[
            ("serve", "hsmux config example"),
            ("status", "hsmux config example"),
        ],
    );
    let check = rig.hsmux("config check").fails();
    check.says("hsmux config schema");
}

#[test]
fn of_keys_and_members() {
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.start();
    for label in ["web", "mail"] {
        rig.hsmux(&format!("key generate ec:p256 --label {label}"))
            .ok();
    }
    let (keys, members) = ("hsmux key list", "hsmux token list");
    say(
        &rig,
        &[
            // Another daemon.
            ("serve", "hsmux stop"),
            // Unknown keys, and ambiguous ones.
            ("key csr --label absent --subject CN=x", keys),
            ("key csr --type private --subject CN=x", keys),
            ("key csr --type public --subject CN=x", keys),
            ("key delete --label absent --yes", keys),
            ("bench sign --label absent", keys),
            ("bench sign", keys),
            // Unknown members.
            ("token park nobody", members),
            ("token resume nobody", members),
            ("token remove nobody", members),
            ("token status nobody", members),
            ("pin release nobody", members),
            ("pin rotate nobody", members),
            ("key clone --label web --to nobody", members),
            // A member that is there.
            ("token add hsm2", members),
            // One that the file does not have.
            (
                "token add hsm9",
                "hsmux token add hsm9 --module FILE --uri URI",
            ),
        ],
    );
    rig.hsmux("token park hsm2").ok();
    let status = "hsmux status";
    say(
        &rig,
        &[
            ("token add hsm2", "hsmux token resume hsm2"),
            ("key clone --label web --to hsm2", status),
            ("key generate ec:p256 --label more", status),
        ],
    );
    // No member works.
    rig.hsmux("token park hsm1 --force").ok();
    say(
        &rig,
        &[
            ("key csr --label web --subject CN=x", status),
            ("key generate ec:p256 --label more", status),
        ],
    );
    rig.hsmux("bench sign --label web --count 2")
        .fails()
        .says("hsmux status");
    // A wrong PIN, at once and later.
    rig.hsmux("token resume hsm1").ok();
    rig.write_pin("hsm2", "not-the-pin");
    for _ in 0..2 {
        let resume = "hsmux token resume hsm2";
        say(&rig, &[("token resume hsm2", resume)]);
    }
    let parked = rig.hsmux("status --check").fails();
    parked.says("hsmux token resume hsm2");
}

/// Slips of people who know neither PKCS#11 URIs nor hsmux.
#[test]
fn of_slips() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let init = format!("token init --module {SOFTHSM} --label new --uri pkcs11:token=absent");
    let broker = format!("{}\n[broker]\nlisten = [\"127.0.0.1:8200\"]\n", rig.config);
    fs::write(rig.path("broker.toml"), broker).unwrap();
    let revoke = "token-auth revoke nobody --config broker.toml";
    say(&rig, &[(revoke, "hsmux serve")]);
    fs::create_dir(rig.path("state")).unwrap();
    fs::set_permissions(rig.path("state"), Permissions::from_mode(0o700)).unwrap();
    say(
        &rig,
        &[
            (&init, "hsmux token list --module"),
            (revoke, "hsmux token-auth list"),
            ("key reference pkcs11:token=web", "hsmux key list"),
        ],
    );
    let fails = |line: &str| rig.hsmux(line).fails();
    fails("key csr web --subject CN=x").says("--label web");
    fails("key generate ec:p256 --label x --id 0x0a").says("such as 0a1b");
    fs::write(rig.path("text"), "no certificate").unwrap();
    fails("key cert import text").says("openssl x509 -in text");
}

#[test]
fn a_listener_without_a_pin_names_its_own_section() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.config.module += "\n[[listener]]\nsocket = \"second.sock\"";
    rig.write_config();
    rig.hsmux("config check")
        .ok()
        .says("second.sock: applications log in with the PIN of hsm1")
        .says("[[listener]] pin gives them one of their own")
        .never_says("[daemon] pin");
}

/// Somebody else's port, and somebody else's socket.
#[test]
fn of_what_belongs_to_others() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    rig.config.module = format!("[broker]\nlisten = [\"{taken}\"]");
    rig.write_config();
    say(&rig, &[("serve", "hsmux doctor")]);

    rig.config.module = String::new();
    rig.start();
    let program = rig.path("program");
    copy_program(&built(Program::Hsmux), &program);
    let everybody = |file: &str, mode| {
        fs::set_permissions(rig.path(file), Permissions::from_mode(mode)).unwrap();
    };
    everybody("", 0o755);
    everybody("program", 0o755);
    everybody("hsmux.toml", 0o644);
    let as_nobody = |line: &str| -> Finished {
        rig.run("setpriv")
            .args("--reuid 65534 --regid 65534 --clear-groups --")
            .arg(&program)
            .args(line)
            .fails()
    };
    for line in ["audit", "pin list"] {
        as_nobody(line).says("Permission denied").says("sudo hsmux");
    }
    let config = rig.path("hsmux.toml");
    let again = format!("sudo hsmux --config {}", config.display());
    for line in ["status", "key list", "token park hsm1"] {
        as_nobody(line).says("Permission denied").says(&again);
    }
}
