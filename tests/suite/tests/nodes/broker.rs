//! Brokers on two hosts: one works with keys of the other only where its host is trusted with them.

use hsmux_suite::{PATIENCE, Rig, until};
use serde_json::Value;

use crate::pair::Pair;

/// The tests' own user may do everything.
fn broker() -> String {
    let user = rustix::process::getuid().as_raw();
    format!(
        "\n[broker]\nsocket = \"broker.sock\"\n[[policy]]\nclients = [\"uid:{user}\"]\nkeys = [\"*\"]\nallow = [\"*\"]\n"
    )
}

/// A request to the broker of a host: what it answers, if that is good.
fn ask(rig: &Rig, path: &str, body: &Value) -> Option<Value> {
    // The daemon answers a moment before its broker does.
    let done = until("the broker answers", PATIENCE, || {
        let curl = rig.run("curl");
        let curl = curl.args("--silent --unix-socket broker.sock --data-binary @-");
        let curl = curl.arg(format!("http://broker/v1/transit/{path}"));
        let done = curl.input(body.to_string()).finish();
        (done.code == Some(0)).then_some(done)
    });
    let answer: Value = serde_json::from_str(&done.out).unwrap_or_default();
    answer["errors"].is_null().then(|| answer["data"].clone())
}

#[test]
fn a_host_sees_keys_of_the_broker_only_where_it_is_trusted_with_them() {
    let mut pair = Pair::prepare(0, 1);
    let trusted = pair.peers.clone();
    pair.peers += &broker();
    pair.member += &broker();
    pair.start_node();
    let made = serde_json::json!({"type": "aes256-gcm96"});
    until("the node has a key", PATIENCE, || {
        ask(&pair.node, "keys/orders", &made)
    });
    let plain = serde_json::json!({"plaintext": "c2VjcmV0"});
    let sealed = ask(&pair.node, "encrypt/orders", &plain).expect("a ciphertext");
    let sealed = serde_json::json!({"ciphertext": sealed["ciphertext"]});

    pair.start_user();
    pair.user.wait_for_members(1);
    let listed = || pair.user.hsmux("key list").ok().out;
    until("keys of the node are there", PATIENCE, || {
        listed().contains("ec").then_some(())
    });
    assert!(!listed().contains("orders"));
    assert_eq!(ask(&pair.user, "decrypt/orders", &sealed), None);

    pair.peers = format!("{trusted}\nbroker_keys = true\n{}", broker());
    pair.write_node();
    pair.node.hsmux("reload").ok();
    let opened = until("the broker of the other host decrypts", PATIENCE, || {
        ask(&pair.user, "decrypt/orders", &sealed)
    });
    assert_eq!(opened["plaintext"], "c2VjcmV0");
}
