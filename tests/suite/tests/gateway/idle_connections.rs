//! Idle connections are closed if another address has no slot.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, RwLock};

use boring::ssl::SslStream;
use hsmux_suite::{PATIENCE, until};

use crate::backends::{backend, head};
use crate::h2;
use crate::hosts::tls_handshake;
use crate::rig::{BOTH, FOLDER, Gateway};
use crate::unused_signatures::from;

const ONE: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];
const HONEST: [u8; 4] = [127, 0, 0, 4];

const PAGE: &[u8] = b"GET /page.txt HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// `GOAWAY` (RFC 9113, section 6.8).
const GOAWAY: u8 = 7;

fn start(lines: &str, more: &str) -> Gateway {
    // No connection ends by itself.
    let lines = format!("idle_timeout = \"300s\"\nhandshake_timeout = \"300s\"\n{lines}");
    let sites = format!("[[site]]\nnames = [\"a.test\"]\n{BOTH}\n{FOLDER}\n{more}");
    Gateway::start(Gateway::prepare(), &lines, &sites)
}

fn connect(gateway: &Gateway, address: [u8; 4], name: &str) -> SslStream<TcpStream> {
    tls_handshake(from(address, &gateway.address, b""), name, "http/1.1")
}

/// Requests the page on a connection that stays open.
fn ask(stream: &mut SslStream<TcpStream>) {
    stream.write_all(PAGE).expect("a request");
    let mut answer = Vec::new();
    while !answer.ends_with(b"a page\n") {
        let mut part = [0; 512];
        let length = stream.read(&mut part).expect("an answer");
        assert!(length > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend(&part[..length]);
    }
}

/// A client that has the page, and keeps its connection.
fn served(gateway: &Gateway, address: [u8; 4]) -> SslStream<TcpStream> {
    let mut stream = connect(gateway, address, "a.test");
    ask(&mut stream);
    stream
}

/// A copy of its socket, which keeps it open. Further bytes are not read as TLS.
fn kept(stream: &SslStream<TcpStream>) -> TcpStream {
    stream.get_ref().try_clone().expect("a copy")
}

/// Whether the other side has ended a connection.
fn has_ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = stream;
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            // Tickets, and TLS's close_notify.
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

fn closed(gateway: &Gateway) -> u64 {
    gateway.metric("hsmux_gateway_closed_total{reason=\"idle\"}")
}

fn refused(gateway: &Gateway, reason: &str) -> u64 {
    gateway.metric(&format!(
        "hsmux_gateway_refused_total{{reason=\"{reason}\"}}"
    ))
}

fn all_places_are_taken(gateway: &Gateway, places: u64) {
    until("all places are taken", PATIENCE, || {
        let shaking = gateway.metric("hsmux_gateway_handshakes_in_flight");
        let all = gateway.metric("hsmux_gateway_connections");
        (all == places && shaking == 0).then_some(())
    });
}

/// The oldest idle connection of the address with the most is closed. A request under way and a tunnel are kept.
#[test]
fn idle_connections_of_two_addresses_leave_slots_to_a_third() {
    let answers = Arc::new(RwLock::new(()));
    let wait = Arc::clone(&answers);
    let slow = backend(move |mut stream| {
        head(&mut BufReader::new(stream.try_clone().expect("a copy")));
        drop(wait.read());
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\na page\n";
        stream.write_all(answer.as_bytes()).expect("a gateway");
    });
    let echo = backend(|mut stream| {
        let mut reader = stream.try_clone().expect("a copy");
        let _ = std::io::copy(&mut reader, &mut stream);
    });
    let more = format!(
        "[[site]]\nnames = [\"slow.wild.test\"]\n{BOTH}\nbackend = \"http://{slow}\"\n\
         [[site]]\nnames = [\"tunnel.wild.test\"]\n{BOTH}\nbackend = \"tcp://{echo}\""
    );
    let gateway = start("connections = 16\nhttp = [\"127.0.0.1:0\"]", &more);
    let nobody = answers.write().expect("the back end");

    let mut busy = connect(&gateway, ONE, "slow.wild.test");
    let request = b"GET / HTTP/1.1\r\nHost: slow.wild.test\r\n\r\n";
    busy.write_all(request).expect("a request");
    let mut tunnel = connect(&gateway, ONE, "tunnel.wild.test");
    tunnel.write_all(b"one").expect("a tunnel");
    tunnel.read_exact(&mut [0; 3]).expect("an echo");
    let mut idle = vec![from(ONE, &gateway.http, b"")];
    until("it is accepted", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections") == 3).then_some(())
    });
    idle.push(kept(&connect(&gateway, ONE, "a.test")));
    idle.extend((0..8).map(|_| kept(&served(&gateway, ONE))));
    let others: Vec<_> = (0..4).map(|_| served(&gateway, OTHER)).collect();
    all_places_are_taken(&gateway, 16);

    // 12, 4 and 0: the last address gets as many as the first one keeps.
    let mut honest = Vec::new();
    for count in 1..=6 {
        honest.push(served(&gateway, HONEST));
        assert_eq!(closed(&gateway), count);
        let gone = idle.iter().take_while(|stream| has_ended(stream)).count();
        assert_eq!(gone as u64, count);
    }
    assert!(!idle[6..].iter().any(has_ended));
    assert_eq!(refused(&gateway, "connections"), 0);
    // 6, 4 and 6: with one more it would have more than the first one.
    let one_more = from(HONEST, &gateway.address, b"");
    assert!(crate::bad_clients::rest(one_more).is_empty());
    assert_eq!(refused(&gateway, "connections"), 1);
    honest.iter_mut().for_each(ask);
    assert!(!others.iter().any(|stream| has_ended(stream.get_ref())));
    drop(nobody);
    let mut answer = [0; 4096];
    let length = busy.read(&mut answer).expect("an answer");
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
    tunnel.write_all(b"two").expect("a tunnel");
    tunnel.read_exact(&mut [0; 3]).expect("an echo");
}

/// A client that does not react is closed as well.
#[test]
fn an_idle_connection_of_http2_gets_goaway() {
    let gateway = start("connections = 16\nsource_connections = 16", "");
    let open = |_| {
        let mut stream = tls_handshake(from(ONE, &gateway.address, b""), "a.test", "h2");
        stream.write_all(h2::PREFACE).expect("a preface");
        h2::write(&mut stream, h2::SETTINGS, 0, h2::ALL, &[]).expect("settings");
        let (kind, _, _) = h2::read(&mut stream).expect("settings");
        assert_eq!(kind, h2::SETTINGS);
        stream
    };
    let mut idle: Vec<_> = (0..16).map(open).collect();
    all_places_are_taken(&gateway, 16);
    let _honest = [served(&gateway, HONEST), served(&gateway, HONEST)];
    assert_eq!(closed(&gateway), 2);
    for stream in &mut idle[..2] {
        let mut kinds = Vec::new();
        while let Ok((kind, _, _)) = h2::read(stream) {
            kinds.push(kind);
        }
        assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    }
    assert_eq!(gateway.metric("hsmux_gateway_connections"), 16);
}

/// Silent clients of two addresses hold all handshake slots.
#[test]
fn idle_handshakes_of_two_addresses_leave_slots_to_a_third() {
    let gateway = start("handshakes = 16", "");
    let one: Vec<_> = (0..12).map(|_| from(ONE, &gateway.address, b"")).collect();
    let other: Vec<_> = (0..4).map(|_| from(OTHER, &gateway.address, b"")).collect();
    until("all handshakes are under way", PATIENCE, || {
        (gateway.metric("hsmux_gateway_handshakes_in_flight") == 16).then_some(())
    });
    served(&gateway, HONEST);
    assert_eq!(closed(&gateway), 1);
    // The order in which the gateway's threads begin decides which one is the oldest.
    let ended = || one.iter().filter(|stream| has_ended(stream)).count();
    until("one of the address with the most ends", PATIENCE, || {
        (ended() > 0).then_some(())
    });
    assert_eq!(ended(), 1);
    assert!(!other.iter().any(has_ended));
    assert_eq!(refused(&gateway, "handshakes"), 0);
}
