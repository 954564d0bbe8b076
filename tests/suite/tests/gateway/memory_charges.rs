//! Answers in small parts, and incomplete heads: they hold no more memory than is charged.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use boring::ssl::SslStream;
use hsmux_suite::{PATIENCE, until};

use crate::backends::{backend, head, in_front_of};
use crate::h2::{PREFACE, SETTINGS, WINDOW_UPDATE};
use crate::hosts::connect;
use crate::rig::{BOTH, FOLDER, Gateway};
use crate::stalled_clients::{frame, get, resident};

const MEMORY: &str = "hsmux_gateway_memory_bytes";
const CLOSED: &str = "hsmux_gateway_closed_total{reason=\"memory\"}";
const WINDOW: u32 = i32::MAX as u32;

/// The progress of a back end.
#[derive(Default)]
struct Done {
    filled: AtomicUsize,
    events: Mutex<Vec<TcpStream>>,
}

/// Sends an endless answer, or leaves the answer to the test.
fn serve(mut stream: TcpStream, done: &Done) {
    let asked = head(&mut BufReader::new(&stream));
    let begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    if stream.write_all(begin).is_err() {
        return;
    }
    if asked.starts_with("get /events") {
        stream.set_nodelay(true).expect("no delay");
        done.events.lock().expect("a list").push(stream);
        return;
    }
    let part = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    while stream.write_all(part.as_bytes()).is_ok() {
        done.filled.fetch_add(1, Relaxed);
    }
}

/// A client of HTTP/2 with open windows that reads nothing.
fn ask(gateway: &Gateway) -> SslStream<TcpStream> {
    let mut client = connect(gateway, "a.test", "h2");
    let window = WINDOW.to_be_bytes();
    let settings = [&[0, 4], &window[..]].concat();
    let more = (WINDOW - 65_535).to_be_bytes();
    let said = [
        PREFACE,
        &frame(SETTINGS, 0, 0, &settings),
        &frame(WINDOW_UPDATE, 0, 0, &more),
        &get(1, "/fill"),
    ];
    client.write_all(&said.concat()).expect("a request");
    client
}

/// A read of 20 bytes uses a buffer of at least 8 KiB.
#[test]
fn unread_events_hold_no_buffers() {
    const STREAMS: u32 = 90;
    const EVENTS: usize = 100;
    const GROWTH: u64 = 32 << 20;
    let done = Arc::new(Done::default());
    let told = Arc::clone(&done);
    let address = backend(move |stream| serve(stream, &told));
    let gateway = in_front_of("http", &address, "");
    let mut client = ask(&gateway);
    let mut seen = (0, Instant::now());
    until("no more fits in", PATIENCE, || {
        let filled = done.filled.load(Relaxed);
        if filled != seen.0 {
            seen = (filled, Instant::now());
        }
        (filled > 0 && seen.1.elapsed() > Duration::from_secs(1)).then_some(())
    });
    for number in 1..=STREAMS {
        let request = get(2 * number + 1, "/events");
        client.write_all(&request).expect("a request");
    }
    until("all are under way", PATIENCE, || {
        let begun = done.events.lock().expect("a list").len();
        (begun == STREAMS as usize).then_some(())
    });
    let before = resident(&gateway).0;
    let event = b"14\r\ndata: 123456789012\n\n\r\n";
    let streams = done.events.lock().expect("a list");
    for _ in 0..EVENTS {
        for mut stream in streams.iter() {
            stream.write_all(event).expect("an event");
        }
        // The delay makes the gateway read each event alone.
        gateway.metric(MEMORY);
    }
    let held = until("they are held", PATIENCE, || {
        let held = gateway.metric(MEMORY);
        (held > u64::from(STREAMS) * EVENTS as u64 * 20).then_some(held)
    });
    let (after, most) = resident(&gateway);
    println!("before {before}, held {held}, after {after}, at most {most}");
    assert!(most < before + GROWTH, "{before} {after} {most}");
    drop(client);
    until("all is given back", PATIENCE, || {
        (gateway.metric(MEMORY) == 0).then_some(())
    });
}

#[test]
fn unfinished_heads_share_one_budget_and_short_ones_are_served() {
    const CONNECTIONS: usize = 300;
    /// A quarter of `memory`.
    const ROOM: u64 = 2 << 20;
    const GROWTH: u64 = 13 << 20;
    let site = format!("[[site]]\n{BOTH}\n{FOLDER}");
    let gateway = Gateway::start(Gateway::prepare(), "memory = 8388608", &site);
    let begin = |_| {
        let mut client = connect(&gateway, "a.test", "http/1.1");
        let said = client.write_all(b"GET /page.txt HTTP/1.1\r\nHost: a.test\r\n");
        said.expect("the begin of a head");
        client
    };
    let mut clients: Vec<_> = (0..CONNECTIONS).map(begin).collect();
    gateway.curl("a.test", "/page.txt", "").says("a page");
    let before = resident(&gateway).0;
    let line = format!("X-Long: {}", "x".repeat(60_000));
    for client in &mut clients {
        // The gateway closes it if no memory is left.
        let _ = client.write_all(line.as_bytes());
    }
    until("most are closed", PATIENCE, || {
        (gateway.metric(CLOSED) > CONNECTIONS as u64 - 60).then_some(())
    });
    let held = gateway.metric(MEMORY);
    let (after, most) = resident(&gateway);
    println!("before {before}, held {held}, after {after}, at most {most}");
    assert!(held > ROOM / 2 && held <= ROOM, "{held}");
    assert!(most < before + GROWTH, "{before} {after} {most}");
    gateway
        .curl("a.test", "/page.txt", "--http1.1")
        .says("a page");
    drop(clients);
    until("all is given back", PATIENCE, || {
        (gateway.metric(MEMORY) == 0).then_some(())
    });
}
