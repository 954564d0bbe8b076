//! Uses of keys by the gateway, on the audit trail.

use std::process::{Command, Stdio};

use hsmux_suite::{PATIENCE, Rig, until};
use serde_json::Value;

use crate::lost_tokens::{cards, start};
use crate::rig::{ASK, BOTH, FOLDER, Gateway, page};

const AUDIT: &str = "[audit]\nkeys = true\n";

/// A gateway whose uses of keys are audited.
fn gateway(lines: &str) -> Gateway {
    let sites = format!("[[site]]\n{BOTH}\n{FOLDER}\n{AUDIT}");
    Gateway::start(Gateway::prepare(), lines, &sites)
}

/// The gateway's lines of the trail.
fn of_gateway(rig: &Rig) -> Vec<Value> {
    let mut lines = rig.trail();
    lines.retain(|line| line["actor"] == "gateway");
    lines
}

#[test]
fn each_handshake_is_a_use_of_its_key() {
    let gateway = gateway("");
    page(gateway.port()).ok();
    let said = gateway.s_client("-tls1_2 -sigalgs RSA+SHA256", ASK);
    assert!(said.contains("a page"), "{said}");
    let lines = until("a line for each", PATIENCE, || {
        let lines = of_gateway(&gateway.rig);
        (lines.len() >= 2).then_some(lines)
    });
    let expected = [("ec", "CKM_ECDSA"), ("rsa", "CKM_RSA_PKCS")];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (label, mechanism)) in lines.iter().zip(expected) {
        assert_eq!(line["call"], "C_Sign", "{line}");
        assert_eq!(
            (&line["label"], &line["mechanism"]),
            (&label.into(), &mechanism.into())
        );
        assert_eq!(line["outcome"], "done", "{line}");
        assert!(line["micros"].is_u64(), "{line}");
        assert_eq!(line["key"].as_str().map(str::len), Some(16), "{line}");
        let peer = line["peer"].as_str();
        assert!(
            peer.is_some_and(|peer| peer.starts_with("127.0.0.1:")),
            "{line}"
        );
    }
    gateway
        .rig
        .hsmux("audit verify")
        .finish()
        .never_says("NOT as");
}

#[test]
fn without_audit_of_keys_a_handshake_has_no_line() {
    let mut gateway = Gateway::with_folder();
    page(gateway.port()).ok();
    gateway.rig.stop();
    assert!(of_gateway(&gateway.rig).is_empty());
}

#[test]
fn no_token_signs_for_a_handshake_while_the_trail_cannot_be_written() {
    let gateway = gateway("");
    page(gateway.port()).ok();
    let signed = || gateway.metric("hsmux_gateway_signatures_total");
    let before = signed();
    gateway.rig.fill_the_trails_disk();
    page(gateway.port()).fails();
    assert_eq!(signed(), before);
    assert_ne!(gateway.metric("hsmux_gateway_signatures_failed_total"), 0);
    until("its health says why", PATIENCE, || {
        let health = gateway.health();
        (health.contains("503") && health.contains("audit trail")).then_some(())
    });

    gateway.rig.make_room_for_the_trail();
    page(gateway.port()).ok();
    until("it is well again", PATIENCE, || {
        gateway.health().contains("200 OK").then_some(())
    });
    let refused = |line: &Value| line["gap"]["refused"].as_u64() >= Some(1);
    assert!(
        gateway.rig.trail().iter().any(refused),
        "{:?}",
        gateway.rig.trail()
    );
}

#[test]
fn handshakes_go_on_without_the_trail_if_so_configured() {
    let sites = format!("[[site]]\n{BOTH}\n{FOLDER}\n{AUDIT}on_failure = \"continue\"\n");
    let gateway = Gateway::start(Gateway::prepare(), "", &sites);
    gateway.rig.fill_the_trails_disk();
    page(gateway.port()).ok();
    assert!(gateway.health().contains("200 OK"), "{}", gateway.health());
    until("its line is lost", PATIENCE, || {
        (gateway.rig.status()["audit"]["lost"].as_u64() >= Some(1)).then_some(())
    });
}

/// The keys of the previous, the current and the next period.
#[test]
fn derived_ticket_keys_are_uses_of_their_secret() {
    let gateway = gateway("ticket_secret = \"pkcs11:object=tickets\"");
    let generate = "key generate hmac:256 --label tickets";
    gateway.rig.hsmux(generate).ok();
    let lines = until("their lines", PATIENCE, || {
        let mut lines = of_gateway(&gateway.rig);
        lines.retain(|line| line["label"] == "tickets" && line["outcome"] == "done");
        (lines.len() >= 3).then_some(lines)
    });
    for line in lines {
        assert_eq!(line["mechanism"], "CKM_SHA256_HMAC", "{line}");
        assert!(line["peer"].is_null(), "{line}");
    }
}

/// The token signs for it nevertheless.
#[test]
fn a_handshake_whose_client_has_gone_has_a_line() {
    let (rig, mut cards) = cards(&["card"]);
    let gateway = start(rig, &format!("sign_timeout = \"120s\"\n{AUDIT}"));
    cards.set_all("hang_in_sign = true");
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &gateway.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a client");
    until("it waits", PATIENCE, || {
        (gateway.metric("hsmux_gateway_signatures_waiting") == 1).then_some(())
    });
    client.kill().expect("a client to end");
    client.wait().expect("its end");
    cards.set_all("");
    until("its line", PATIENCE, || {
        let lines = of_gateway(&gateway.rig);
        let signed = |line: &Value| line["call"] == "C_Sign" && line["outcome"] == "done";
        lines.iter().any(signed).then_some(())
    });
}
