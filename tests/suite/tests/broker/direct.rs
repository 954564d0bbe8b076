//! Signatures that workers of fast tokens make for the broker without the daemon in between.

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use rustix::process::Signal;
use serde_json::json;

use crate::process::signal;
use crate::rig::Broker;

const INPUT: &str = r#"{"input": "dGV4dA=="}"#;

/// A broker with a key that signs. A request that needs the daemon is given up soon.
fn broker(more: &str) -> Broker {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.config.pool = "deadline = \"2s\"".into();
    rig.config.daemon.push_str(more);
    let broker = Broker::over(rig, "").known();
    broker.good("POST", "keys/app-ec", r#"{"type": "ecdsa-p256"}"#);
    broker
}

/// So many signatures that the broker asks for direct connections.
fn sign_often(broker: &Broker) {
    let items = vec![json!({"input": "dGV4dA=="}); 200];
    let batch = json!({"batch_input": items}).to_string();
    broker.good("POST", "sign/app-ec", &batch);
}

/// True if there is a signature although the daemon runs nothing.
fn signs_without_daemon(broker: &Broker) -> bool {
    let daemon = broker.rig.daemon.as_ref().expect("a daemon").id();
    signal(daemon, Signal::STOP);
    let (status, _) = broker.ask("POST", "sign/app-ec", INPUT);
    signal(daemon, Signal::CONT);
    status == 200
}

fn wait_for_direct_connections(broker: &Broker) {
    until(
        "a worker signs while the daemon is stopped",
        PATIENCE,
        || {
            sign_often(broker);
            signs_without_daemon(broker).then_some(())
        },
    );
}

#[test]
fn a_worker_signs_for_the_broker_while_the_daemon_is_stopped() {
    let broker = broker("");
    wait_for_direct_connections(&broker);
    for worker in broker.rig.workers() {
        signal(worker, Signal::KILL);
        // The daemon gets uses again whose direct connections have ended.
        sign_often(&broker);
    }
    wait_for_direct_connections(&broker);
}

#[test]
fn where_direct_connections_are_not_allowed_the_daemon_carries_each_signature() {
    let broker = broker("\ndirect = false");
    for _ in 0..3 {
        sign_often(&broker);
        assert!(!signs_without_daemon(&broker));
    }
    broker.good("POST", "sign/app-ec", INPUT);
}
