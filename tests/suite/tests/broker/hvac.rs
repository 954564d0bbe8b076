use hsmux_suite::{Rig, Setup, source};

use crate::rig::Broker;

const SIGNING: [&str; 2] = ["ecdsa-p256", "rsa-2048"];

#[test]
fn hvac_runs_a_whole_session() {
    session(Rig::empty(Setup::Daemon, 2), &SIGNING);
}

#[test]
fn hvac_runs_a_whole_session_with_a_lone_token() {
    let lone = Rig::empty(Setup::Daemon, 1);
    session(lone, &["ecdsa-p256", "ed25519"]);
}

/// SoftHSM lets no Ed25519 key out, not even wrapped: there is one copy of it, and none if there have to be two.
#[test]
fn an_ed25519_key_has_one_copy_or_is_not_made() {
    session(Rig::empty(Setup::Daemon, 2), &["ecdsa-p256", "ed25519"]);
    let mut rig = Rig::empty(Setup::Daemon, 2);
    rig.config.pool.push_str("\nreplicas = 2");
    let broker = Broker::over(rig, "");
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
