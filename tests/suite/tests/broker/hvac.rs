use hsmux_suite::{Rig, Setup, source};

use crate::rig::{Broker, in_the_daemon};

const SIGNING: [&str; 2] = ["ecdsa-p256", "rsa-2048"];

#[test]
fn hvac_runs_a_whole_session() {
    session(Rig::empty(Setup::Daemon, 2), &SIGNING);
}

#[test]
fn hvac_runs_a_whole_session_with_the_module_in_the_daemon() {
    session(in_the_daemon(Rig::empty(Setup::Daemon, 2)), &SIGNING);
}

/// SoftHSM lets no Ed25519 key out, not even wrapped: there is one copy of it.
#[test]
fn hvac_runs_a_whole_session_with_a_lone_token() {
    let lone = Rig::empty(Setup::Daemon, 1);
    session(lone, &["ecdsa-p256", "ed25519"]);
    let broker = Broker::start(2);
    let body = r#"{"type": "ed25519"}"#;
    broker.refused(
        "POST",
        "keys/app-alone",
        body,
        400,
        "does not let this kind of key out",
    );
    broker.refused("GET", "keys/app-alone", "", 404, "");
}

fn session(rig: Rig, signing: &[&str]) {
    let broker = Broker::over(rig, "");
    let program = source().join("tests/suite/programs/broker.py");
    let run = broker.rig.run("/usr/bin/python3").arg(program);
    let mut run = run.arg(&broker.url).arg(&broker.token);
    for kind in signing {
        run = run.arg(kind);
    }
    let done = run.ok();
    for kind in ["aes128-gcm96", "aes256-gcm96", "aes256-cbc"] {
        done.says(&format!("{kind}: there and back"));
    }
    for kind in signing {
        done.says(&format!("{kind}: signed and verified"));
    }
    done.says("hmac: made and verified")
        .says("keys: listed, guarded, deleted");
}
