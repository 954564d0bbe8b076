//! Clients that request signatures of a slow token without using them, beside an honest client.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_bench::http::allow_connections;
use hsmux_suite::{PATIENCE, until};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::version::TLS13;

use crate::abandoned_handshakes::hello;
use crate::lost_tokens::{cards, start};
use crate::rig::Gateway;

const SERVICE: &str = "service_time_us = 200000";

/// A connection from another address of this host, after these bytes.
pub fn from(address: [u8; 4], to: &str, first: &[u8]) -> TcpStream {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a socket");
    bind(&socket, &SocketAddr::from((address, 0))).expect("an address of this host");
    let to: SocketAddr = to.parse().expect("an address");
    connect(socket.as_fd(), &to).expect("a connection");
    let mut stream = TcpStream::from(socket);
    std::io::Write::write_all(&mut stream, first).expect("a hello");
    stream
}

/// A gateway with one card of 200 ms, and the duration of a handshake without load.
fn slow(lines: &str) -> (Gateway, Duration) {
    let (rig, mut cards) = cards(&["card"]);
    cards.set_all(SERVICE);
    let gateway = start(rig, lines);
    // The first handshake includes initial work.
    handshake(&gateway);
    let quiet = (0..3).map(|_| handshake(&gateway)).max();
    (gateway, quiet.expect("handshakes"))
}

/// The time until a client at 127.0.0.1 has the page.
fn handshake(gateway: &Gateway) -> Duration {
    let begun = Instant::now();
    gateway.curl("a.test", "/page.txt", "").says("a page");
    begun.elapsed()
}

/// The times of an honest client while each of these addresses keeps so many handshakes under way.
fn beside(gateway: &Gateway, addresses: &[[u8; 4]], each: usize) -> Vec<Duration> {
    allow_connections();
    let hello = hello(&TLS13);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let open = || {
            let of = |address: &[u8; 4]| {
                let streams = (0..each).map(|_| from(*address, &gateway.address, &hello));
                streams.collect::<Vec<_>>()
            };
            addresses.iter().flat_map(of).collect::<Vec<_>>()
        };
        let mut streams = open();
        let waiting = || gateway.metric("hsmux_gateway_signatures_waiting");
        // Some are refused, because they would wait too long.
        until("many wait", PATIENCE, || (waiting() > 50).then_some(()));
        if addresses.len() > 1 {
            // Until each address has had its first turns.
            let before = signed(gateway);
            until("some were signed for", PATIENCE, || {
                (signed(gateway) >= before + 2 * addresses.len() as u64).then_some(())
            });
        }
        let done = &done;
        scope.spawn(move || {
            // A client that has its answer is replaced by a new one.
            while !done.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    stream.set_nonblocking(true).expect("a socket");
                    if !matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock) {
                        let at = stream.local_addr().expect("an address");
                        let SocketAddr::V4(at) = at else { continue };
                        *stream = from(at.ip().octets(), &gateway.address, &hello);
                    }
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        let waits = (0..12).map(|_| handshake(gateway)).collect();
        done.store(true, Ordering::Relaxed);
        waits
    })
}

fn signed(gateway: &Gateway) -> u64 {
    gateway.metric("hsmux_gateway_signatures_total")
}

/// The second slowest: a busy machine may delay one.
fn slowest_but_one(waits: &[Duration]) -> Duration {
    let mut waits = waits.to_vec();
    waits.sort();
    waits[waits.len() - 2]
}

/// Also the first one: the card has four lanes, and does one thing at a time.
#[test]
fn unfinished_handshakes_of_one_address_do_not_delay_others() {
    let (gateway, quiet) = slow("");
    for (last, each) in [(9, 100), (10, 300)] {
        let waits = beside(&gateway, &[[127, 0, 0, last]], each);
        let longest = waits.iter().max().expect("handshakes");
        assert!(
            *longest < 3 * quiet,
            "{each}: {waits:?}, {quiet:?} when quiet"
        );
    }
}

#[test]
fn unfinished_handshakes_of_dozens_of_addresses_do_not_delay_others() {
    let (gateway, quiet) = slow("");
    let addresses: Vec<_> = (0..24).map(|last| [127, 0, 1, last + 1]).collect();
    let waits = beside(&gateway, &addresses, 10);
    let wait = slowest_but_one(&waits);
    assert!(wait < 3 * quiet, "{waits:?}, {quiet:?} when quiet");
}

/// An address at its limit is refused at once, others are not.
#[test]
fn waiting_signatures_and_handshakes_are_limited_per_address() {
    let lines = "source_signatures = 20\nsource_handshakes = 40\nhandshake_timeout = \"60s\"";
    let (gateway, _) = slow(lines);
    let hello = hello(&TLS13);
    let refused = |reason: &str| {
        gateway.metric(&format!(
            "hsmux_gateway_refused_total{{reason=\"{reason}\"}}"
        ))
    };
    let waiting = || gateway.metric("hsmux_gateway_signatures_waiting");
    let held: Vec<_> = (0..30)
        .map(|_| from([127, 0, 0, 9], &gateway.address, &hello))
        .collect();
    until("some are refused", PATIENCE, || {
        (refused("busy") > 0).then_some(())
    });
    assert!(waiting() <= 24, "{} wait", waiting());
    handshake(&gateway);
    let silent: Vec<_> = (0..60)
        .map(|_| from([127, 0, 0, 8], &gateway.address, &[]))
        .collect();
    until("one address has all it may", PATIENCE, || {
        (refused("source") == 20).then_some(())
    });
    handshake(&gateway);
    drop((held, silent));
}
