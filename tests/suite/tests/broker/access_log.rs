//! The access log of the broker: who has asked for what, and no secret.

use std::fs;

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::Value;

use crate::connection::Connection;
use crate::rig::Broker;

const SECTIONS: &str = r#"
[broker]
listen = ["127.0.0.1:0"]
socket = "broker.sock"
metrics = true
access_log = "access.log"

[[policy]]
clients = ["token:app"]
keys = ["app-*", "label:*", "pkcs11:*"]
allow = ["*"]
"#;

fn start() -> Broker {
    Broker::of(Rig::empty(Setup::Daemon, 1), SECTIONS).known()
}

/// The lines of the log that have this text, once there are so many.
fn lines(broker: &Broker, text: &str, count: usize) -> Vec<Value> {
    let path = broker.rig.path("access.log");
    until(&format!("{count} lines with {text}"), PATIENCE, || {
        let log = fs::read_to_string(&path).unwrap_or_default();
        let found = log.lines().filter(|line| line.contains(text));
        let found: Vec<_> = found
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert!(found.len() <= count, "{log}");
        (found.len() == count).then_some(found)
    })
}

fn has(line: &Value, fields: &[(&str, Value)]) {
    for (name, value) in fields {
        assert_eq!(&line[name], value, "{name}: {line}");
    }
}

#[test]
fn a_line_has_the_client_the_operation_and_the_key() {
    let broker = start();
    broker.good("POST", "keys/app-one", "");
    for (count, version) in [(1, "--http1.1"), (2, "--http2-prior-knowledge")] {
        let body = r#"{"plaintext": "dG9wIHNlY3JldA=="}"#;
        let path = "encrypt/app-one?query=secret";
        let answer = broker.curl(&broker.token, "POST", path, body, version);
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let line = &lines(&broker, "/encrypt/", count)[count - 1];
        has(
            line,
            &[
                ("client", "127.0.0.1".into()),
                ("user", "token:app".into()),
                ("method", "POST".into()),
                ("path", "/v1/transit/encrypt/app-one".into()),
                ("key", "app-one".into()),
                ("status", 200.into()),
                ("received", body.len().into()),
                ("request_id", answer["request_id"].clone()),
                ("aborted", Value::Null),
            ],
        );
        let protocol = ["HTTP/1.1", "HTTP/2.0"][count - 1];
        has(line, &[("protocol", protocol.into())]);
        assert!(line["sent"].as_u64() > Some(100), "{line}");
    }
    let mut unix = Connection::unix(&broker.rig.path("broker.sock"));
    unix.ask("GET", "/v1/transit/keys/app-one", "", "")
        .expect("an answer");
    let uid = rustix::process::geteuid().as_raw();
    let expected = [
        ("client", "unix:".into()),
        ("user", format!("uid:{uid}").into()),
        ("status", 403.into()),
    ];
    has(&lines(&broker, "unix:", 1)[0], &expected);
}

#[test]
fn refused_requests_have_lines_without_secrets() {
    let broker = start();
    let stranger = "hsmb.not-a-token";
    let (status, _) = broker.ask_as(stranger, "POST", "encrypt/app-two", "{}");
    assert_eq!(status, 403);
    let line = &lines(&broker, "app-two", 1)[0];
    has(line, &[("status", 403.into()), ("user", Value::Null)]);
    assert!(line["request_id"].is_string(), "{line}");
    // People write PINs into URIs, and anything into paths.
    let uri = "sign/pkcs11:object=web%3Fpin-value=1234";
    broker.ask("POST", uri, "{}");
    let line = &lines(&broker, "/v1/transit/sign/", 1)[0];
    assert_eq!(line["user"], "token:app", "{line}");
    broker.ask("POST", "none/pin-value=1234", "{}");
    has(
        &lines(&broker, "\"path\":\"-\"", 1)[0],
        &[("status", 404.into())],
    );
    let log = fs::read_to_string(broker.rig.path("access.log")).expect("a log");
    for secret in [&*broker.token, stranger, "1234", "plaintext"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn a_client_that_leaves_before_its_answer_has_a_line() {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a"]);
    rig.config.members[0].more.push_str("timeout = \"10m\"\n");
    let broker = Broker::of(rig, SECTIONS).known();
    tokens.set("a", "hang_in_sign = true");
    let mut client = Connection::tcp(&broker.url);
    let body = r#"{"input": "dGV4dA=="}"#;
    client
        .send("POST", "/v1/transit/sign/label:ec", &broker.token, body)
        .expect("a request");
    until("it is under way", PATIENCE, || {
        let in_flight = broker.metric("hsmux_broker_requests_in_flight ");
        // The page of metrics is no such request.
        (in_flight >= 1.0).then_some(())
    });
    drop(client);
    has(
        &lines(&broker, "/sign/", 1)[0],
        &[
            ("user", "token:app".into()),
            ("path", "/v1/transit/sign/label:ec".into()),
            ("received", body.len().into()),
            ("status", 499.into()),
            ("aborted", true.into()),
        ],
    );
    tokens.set("a", "");
}

#[test]
fn it_follows_a_rotation_and_a_reload_turns_it_off() {
    let mut broker = start();
    let path = broker.rig.path("access.log");
    until("the first line", PATIENCE, || path.exists().then_some(()));
    fs::rename(&path, broker.rig.path("access.log.1")).expect("a rotation");
    broker.rig.hsmux("reload").ok();
    broker.good("POST", "keys/app-new", "");
    lines(&broker, "app-new", 1);
    for (now, next, said) in [
        ("access.log", "off", "access_log goes nowhere"),
        ("off", "other.log", "/other.log\n"),
    ] {
        let key = |file| format!("access_log = \"{file}\"");
        let module = &mut broker.rig.config.module;
        *module = module.replace(&key(now), &key(next));
        broker.rig.write_config();
        broker.rig.hsmux("reload").ok().says("[broker] changed");
        let daemon = broker.rig.daemon.as_ref().expect("a daemon");
        until(said, PATIENCE, || daemon.log().contains(said).then_some(()));
        broker.good("GET", "keys/app-new", "");
    }
    let other = broker.rig.path("other.log");
    until("the last line", PATIENCE, || {
        let text = fs::read_to_string(&other).unwrap_or_default();
        text.ends_with('\n').then_some(())
    });
    assert_eq!(lines(&broker, "app-new", 1).len(), 1);
    let other = fs::read_to_string(other).expect("a log");
    assert_eq!(other.lines().count(), 1, "{other}");
}
