//! Answers that clients do not take: all of them have one memory, with the bodies of requests.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use hsmux_suite::{PATIENCE, Rig, Setup, until};

use crate::frames::{
    CLOSED, DATA, END_STREAM, HEADERS, WINDOW_UPDATE, connect, frame, get, post, read,
};
use crate::rig::Broker;

const ENCRYPT: &str = "/v1/transit/encrypt/app-gcm";
const MEMORY: &str = "hsmux_broker_memory_bytes ";
const BUSY: &str = "hsmux_broker_refusals_total{reason=\"busy\"} ";

/// All memory, of which one client has half.
const ROOM: f64 = (32 << 20) as f64;
/// The process may take so much more than before: it also works on batches.
const GROWTH: u64 = 150 << 20;

const CONNECTIONS: usize = 250;
/// Their bodies fit in the first window of a connection, 64 KiB.
const STREAMS: u32 = 2;

fn start() -> Broker {
    let section = format!(
        r#"
[broker]
listen = ["127.0.0.1:0"]
max_body = 65536
max_bodies = {ROOM}
metrics = true

[[policy]]
clients = ["token:app", "token:other"]
keys = ["app-*"]
allow = ["*"]
"#
    );
    let broker = Broker::of(Rig::empty(Setup::Daemon, 1), &section).known();
    broker.good("POST", "keys/app-gcm", "");
    broker
}

/// A short body with a long answer: an error for each of its items.
fn errors() -> String {
    format!(r#"{{"batch_input":[{}]}}"#, vec!["{}"; 10_000].join(","))
}

/// Of the daemon's process, in bytes: now, and at most until now.
pub fn resident(broker: &Broker) -> (u64, u64) {
    let pid = broker.rig.daemon.as_ref().expect("a daemon").id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.expect("a field").trim().trim_end_matches(" kB");
        number.parse::<u64>().expect("a number") << 10
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Waits for the heads of so many answers; a closed window keeps their bodies back.
fn wait_for_heads(stream: &mut TcpStream, count: u32) {
    let mut heads = 0;
    while heads < count {
        heads += u32::from(read(stream).0 == HEADERS);
    }
}

/// The flags of the next part of an answer.
fn next_part(stream: &mut TcpStream) -> u8 {
    loop {
        if let (DATA, flags, _) = read(stream) {
            return flags;
        }
    }
}

fn is_last(flags: u8) -> bool {
    flags & END_STREAM != 0
}

#[test]
fn unread_answers_share_one_memory_and_hold_up_nobody() {
    let broker = start();
    let other = broker.rig.hsmux("token-auth create other").ok();
    let other = other.out.trim();
    let before = resident(&broker).0;
    let body = errors();
    let ask = |_| {
        let mut stream = connect(&broker, CLOSED);
        for number in 0..STREAMS {
            let request = post(2 * number + 1, ENCRYPT, &broker.token, body.as_bytes());
            stream.write_all(&request).expect("a request");
        }
        // One after the other, so that no body takes the room of an answer.
        wait_for_heads(&mut stream, STREAMS);
        stream
    };
    let clients: Vec<_> = (0..CONNECTIONS).map(ask).collect();
    let held = broker.metric(MEMORY);
    let (after, most) = resident(&broker);
    println!("before {before}, held {held}, after {after}, at most {most}");
    assert!(most < before + GROWTH, "{before} {after} {most}");
    assert!(held > ROOM / 4.0 && held <= ROOM / 2.0, "{held}");
    assert!(broker.metric(BUSY) > 0.0);
    // The client who has no room can change keys: a short answer always has room.
    broker.good("POST", "keys/app-new", "");
    // A token that was just made is known a moment later.
    let text = r#"{"plaintext": "c2VjcmV0"}"#;
    until("another client is served", PATIENCE, || {
        let (status, _) = broker.ask_as(other, "POST", "encrypt/app-gcm", text);
        (status == 200).then_some(())
    });
    let (status, json) = broker.ask_as(other, "POST", "encrypt/app-gcm", &body);
    assert_eq!(status, 400, "{json}");
    assert_eq!(
        json["data"]["batch_results"].as_array().map(Vec::len),
        Some(10_000)
    );
    drop(clients);
    until("all is given back", PATIENCE, || {
        (broker.metric(MEMORY) < 1.0).then_some(())
    });
    let (status, _) = broker.ask("POST", "encrypt/app-gcm", &body);
    assert_eq!(status, 400);
}

#[test]
fn an_answer_is_held_until_it_is_taken() {
    let broker = start();
    let mut stream = connect(&broker, CLOSED);
    let body = errors();
    let request = post(1, ENCRYPT, &broker.token, body.as_bytes());
    stream.write_all(&request).expect("a request");
    wait_for_heads(&mut stream, 1);
    let whole = broker.metric(MEMORY);
    assert!(whole > 100_000.0, "{whole}");
    let open = |window: u32| {
        [1, 0]
            .map(|of| frame(WINDOW_UPDATE, 0, of, &window.to_be_bytes()))
            .concat()
    };
    // All but the last part is no end of it.
    stream.write_all(&open(1000)).expect("a window");
    assert!(!is_last(next_part(&mut stream)));
    assert!((broker.metric(MEMORY) - whole).abs() < 0.5);
    stream.write_all(&open(1 << 24)).expect("a window");
    while !is_last(next_part(&mut stream)) {}
    until("it is given back", PATIENCE, || {
        (broker.metric(MEMORY) < 1.0).then_some(())
    });
}

#[test]
fn pages_of_metrics_that_nobody_takes_are_held() {
    let broker = start();
    let mut stream = connect(&broker, CLOSED);
    for number in 0..20 {
        let request = get(2 * number + 1, "/metrics");
        stream.write_all(&request).expect("a request");
    }
    wait_for_heads(&mut stream, 20);
    let held = broker.metric(MEMORY);
    assert!(held > 20.0 * 4000.0, "{held}");
    drop(stream);
    until("all is given back", PATIENCE, || {
        (broker.metric(MEMORY) < 1.0).then_some(())
    });
}
