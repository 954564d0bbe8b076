//! Packets between the daemon and a service, and events of the broker.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use hsmux_audit::{Actor, Event};
use hsmux_token::{Error, Kind};
use hsmux_wire::fuzzing::FuzzedLink;
use hsmux_wire::{FromService, ListeningSocket, RecordKind, ServiceClient, ToService};
use serde_json::{Map, json};

use super::{after, write};

/// The input's first byte: without a descriptor, with a socket, a sealed file, two sockets.
const NOTHING: u8 = 0;
const SOCKET: u8 = 1;
const SEALED: u8 = 2;
const TWO: u8 = 3;

pub fn packets() {
    let link = FuzzedLink::default();
    let mut all = Vec::new();
    for message in of_services() {
        let has_socket = matches!(
            message,
            FromService::Listens(_) | FromService::Connect { .. }
        );
        let how = if has_socket { SOCKET } else { NOTHING };
        all.push((how, link.of_service(message)));
    }
    for message in of_the_daemon() {
        let how = match message {
            ToService::Socket(_) => SOCKET,
            ToService::Configuration(_) => SEALED,
            _ => NOTHING,
        };
        all.push((how, link.of_daemon(&message)));
    }
    for (at, (how, packet)) in all.iter().enumerate() {
        write(
            "service_packets",
            &format!("packet-{at}"),
            after(*how, packet),
        );
    }
    let (_, connect) = all.iter().find(|(how, _)| *how == SOCKET).expect("one");
    for (name, how) in [
        ("no-socket", NOTHING),
        ("two-sockets", TWO),
        ("file", SEALED),
    ] {
        write("service_packets", name, after(how, connect));
    }
}

fn of_services() -> Vec<FromService> {
    let text = String::from;
    let record = |kind| FromService::Record {
        event: event(),
        kind,
    };
    let clients = [
        ServiceClient::Service,
        ServiceClient::Host {
            name: text("host2"),
            from: text("192.0.2.7:50412"),
        },
    ];
    let connects = clients.map(|client| FromService::Connect {
        client,
        connection: UnixStream::pair().expect("a pair of sockets").0,
    });
    let mut all = vec![
        FromService::Listens(listening_socket()),
        FromService::Ready,
        FromService::Failed(Error::request(Kind::Forbidden, "no")),
        FromService::Refused {
            from: text("192.0.2.7:50412"),
            problem: text("its certificate has expired"),
            advice: text("hsmux node add host2"),
        },
        record(RecordKind::Event),
        record(RecordKind::Announce(1)),
        record(RecordKind::Commit(u64::MAX)),
        record(RecordKind::Refusals(3)),
        record(RecordKind::Lost(4)),
    ];
    all.extend(connects);
    all
}

fn of_the_daemon() -> Vec<ToService> {
    let busy = Error::busy(64, Duration::from_secs(1));
    vec![
        ToService::Socket(listening_socket()),
        ToService::Configuration("[pool]\nlabel = \"keys\"\n".into()),
        ToService::Trouble(Some("the disk of the audit trail is full".into())),
        ToService::Trouble(None),
        ToService::StopListening,
        ToService::HandOver,
        ToService::Recorded {
            number: 1,
            result: Ok(()),
        },
        ToService::Recorded {
            number: 2,
            result: Err(busy),
        },
    ]
}

fn listening_socket() -> ListeningSocket {
    ListeningSocket {
        name: "gateway.listen 127.0.0.1:443".into(),
        socket: OwnedFd::from(UnixStream::pair().expect("a pair of sockets").0),
    }
}

fn event() -> Vec<u8> {
    let actor = Arc::new(Actor::client("token:app", "192.0.2.7:50412"));
    Event::key_use(&actor, "encrypt", "app")
        .took(250)
        .to_bytes()
}

pub fn events() {
    let actor = Actor::client("token:app", "192.0.2.7:50412").certificate(Some("00ff"));
    let actor = Arc::new(actor);
    let used = Event::key_use(&actor, "sign", "app")
        .label(Some("app".into()))
        .class(Some("private key"))
        .made(Some("00ff".into()))
        .version(Some(3))
        .mechanism(Some("CKM_ECDSA".into()))
        .took(250)
        .request("01J")
        .outcome("failed: the token is busy");
    let mut fields = Map::new();
    fields.insert("versions".into(), json!([1, 2, {"deleted": true}]));
    fields.insert("text".into(), json!("é\u{1}\"".repeat(3_000)));
    let act = Event::act(&actor, "rotate", fields);
    let all = [
        ("use", event()),
        ("use-with-all-fields", used.to_bytes()),
        ("act-that-is-cut", act.to_bytes()),
        ("nested", nested(9).into()),
        ("levels", nested(8).into()),
        ("values", values(1_000).into()),
        ("too-many-values", values(1_001).into()),
    ];
    for (name, bytes) in all {
        write("service_events", name, bytes);
    }
    let old = r#"{"time":"1970-01-01T00:00:00Z","act":"rotate","outcome":"ok"}"#;
    write("service_events", "old", old);
}

/// An event with so many levels of values within values.
fn nested(levels: usize) -> String {
    let value = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    format!(r#"{{"act":"rotate","outcome":"ok","deep":{value}}}"#)
}

/// An event with so many values.
fn values(count: usize) -> String {
    // Two are `act` and `outcome`, one is the list.
    let list = vec!["1e15"; count.saturating_sub(3)].join(",");
    format!(r#"{{"act":"rotate","outcome":"ok","list":[{list}]}}"#)
}
