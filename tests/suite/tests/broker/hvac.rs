use hsmux_suite::source;

use crate::rig::Broker;

#[test]
fn hvac_runs_a_whole_session() {
    session(2, &["ecdsa-p256", "rsa-2048"]);
}

/// SoftHSM lets no Ed25519 key out, not even wrapped: there is one copy of it.
#[test]
fn hvac_runs_a_whole_session_with_a_lone_token() {
    session(1, &["ecdsa-p256", "ed25519"]);
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

fn session(members: usize, signing: &[&str]) {
    let broker = Broker::start(members);
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
