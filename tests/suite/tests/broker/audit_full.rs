//! A disk that is full for the audit trail, as clients meet it over HTTP.

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::Value;

use crate::audit::lines;
use crate::rig::{Broker, METERED};
use crate::store::{TEXT, is_later};

const AUDIT: &str = "
[audit]
keys = true
";

/// `hsmux audit verify` has something to remark.
const REMARKS: Option<i32> = Some(3);

/// A broker with a key, and with a trail whose disk is full.
fn with_a_full_disk(audit: &str) -> Broker {
    let rig = Rig::empty(Setup::Daemon, 1);
    let broker = Broker::of(rig, &format!("{METERED}{AUDIT}{audit}")).known();
    broker.good("POST", "keys/app-gcm", "");
    broker.good("POST", "encrypt/app-gcm", TEXT);
    assert_eq!(number(&broker, UP), "1");
    broker.rig.fill_the_trails_disk();
    broker
}

/// A metric, as text: it is a whole number.
fn number(broker: &Broker, name: &str) -> String {
    broker.metric(name).to_string()
}

const UP: &str = "hsmux_audit_up ";
const LOST: &str = "hsmux_audit_lost_total ";
const REFUSED: &str = "hsmux_audit_refused_total ";

/// What uses a key, or a token.
fn uses() -> [(&'static str, String); 4] {
    [
        ("encrypt/app-gcm", TEXT.to_owned()),
        (
            "encrypt/app-gcm",
            format!(r#"{{"batch_input": [{TEXT}, {TEXT}]}}"#),
        ),
        ("random/16", String::new()),
        ("hash", r#"{"input": "c2VjcmV0"}"#.to_owned()),
    ]
}

/// What changes keys needs its line first, whatever is configured.
fn no_key_changes(broker: &Broker) {
    for path in ["keys/app-new", "keys/app-gcm/rotate"] {
        is_later(broker, path, "", "audit trail");
    }
    let (status, _) = broker.ask("GET", "keys/app-new", "");
    assert_eq!(status, 404, "it was not made");
    let key = broker.good("GET", "keys/app-gcm", "");
    assert_eq!(key["latest_version"], 1, "it was not rotated");
}

fn make_room(broker: &Broker) {
    broker.rig.make_room_for_the_trail();
    assert_eq!(number(broker, UP), "1");
}

/// The number that the trail's own line about the gap has.
fn gap(broker: &Broker, what: &str) -> u64 {
    until("the trail says what is missing", PATIENCE, || {
        let number = |line: Value| line["gap"][what].as_u64();
        lines(broker).into_iter().find_map(number)
    })
}

#[test]
fn a_full_disk_stops_key_use_over_http_until_there_is_room() {
    let broker = with_a_full_disk("");
    for (path, body) in uses() {
        is_later(&broker, path, &body, "audit trail");
    }
    no_key_changes(&broker);
    assert_eq!(number(&broker, UP), "0");
    assert_eq!(number(&broker, LOST), "0");
    assert!(broker.metric(REFUSED) >= 5.0);

    make_room(&broker);
    for (path, body) in uses() {
        broker.good("POST", path, &body);
    }
    assert!(gap(&broker, "refused") >= 5);
    broker.rig.hsmux("audit verify").ok();
}

#[test]
fn or_requests_go_on_and_metrics_log_and_trail_say_what_is_lost() {
    let broker = with_a_full_disk("on_failure = \"continue\"\n");
    for (path, body) in uses() {
        broker.good("POST", path, &body);
    }
    no_key_changes(&broker);
    assert_eq!(number(&broker, UP), "0");
    assert_eq!(number(&broker, REFUSED), "0");
    until("all lines are counted", PATIENCE, || {
        (number(&broker, LOST) == "5").then_some(())
    });
    let log = broker.rig.daemon.as_ref().expect("a daemon").log();
    let said = log.matches("the audit trail cannot be written").count();
    assert_eq!(said, 1, "{log}");

    make_room(&broker);
    broker.good("POST", "encrypt/app-gcm", TEXT);
    assert_eq!(gap(&broker, "lost"), 5);
    let verified = broker.rig.hsmux("audit verify").fails();
    assert_eq!(verified.code, REMARKS, "{verified}");
    verified.says("lines were lost").never_says("NOT as");
}
