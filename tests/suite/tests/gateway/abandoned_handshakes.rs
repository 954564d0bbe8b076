//! Thousands of clients that stop after a complete ClientHello. Each gets a signature, or waits for one.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_bench::http::allow_connections;
use hsmux_suite::{PATIENCE, until};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use crate::bad_clients::{client, rest};
use crate::balancer;
use crate::lost_tokens::{cards, start};
use crate::rig::{ASK, BOTH, FOLDER, Gateway};

/// The ClientHello of this version, for `a.test`.
pub fn hello(version: &'static SupportedProtocolVersion) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version of TLS")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "a.test".try_into().expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("settings that fit");
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("a hello");
    hello
}

/// So many clients of each version that have sent their ClientHello.
fn stopped(gateway: &Gateway, each: usize) -> Vec<(Instant, TcpStream)> {
    allow_connections();
    let of = |version| {
        let hello = hello(version);
        (0..each).map(move |_| (Instant::now(), client(gateway, &hello)))
    };
    of(&TLS12).chain(of(&TLS13)).collect()
}

fn signatures(gateway: &Gateway, what: &str) -> u64 {
    gateway.metric(&format!("hsmux_gateway_signatures_{what}"))
}

/// Peak memory of the gateway, in kilobytes.
fn peak(gateway: &Gateway) -> u64 {
    status(gateway, "VmHWM:")
}

/// A field of proc_pid_status(5) of the gateway's process.
fn status(gateway: &Gateway, field: &str) -> u64 {
    let pid = gateway.process();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its process");
    let field = status.split_once(field).expect("the field").1;
    let number = field.split_whitespace().next().expect("a number");
    number.parse().expect("a number")
}

const LIMIT: Duration = Duration::from_secs(4);
/// Memory that one of them may cost the gateway, in kilobytes.
const COST: u64 = 64;

#[test]
fn clients_that_stop_after_their_hello_are_dropped_and_delay_no_others() {
    let mut rig = Gateway::prepare();
    // All clients have one address, which has three quarters of the queue.
    rig.config.pool.push_str("\nqueue = 4000");
    let site = format!("[[site]]\n{BOTH}\n{FOLDER}");
    let lines = "handshake_timeout = \"4s\"\nsign_timeout = \"120s\"";
    let gateway = Gateway::start(rig, lines, &site);
    gateway.curl("a.test", "/page.txt", "").says("a page");
    let before = peak(&gateway);
    let stopped = stopped(&gateway, 500);
    gateway.curl("a.test", "/page.txt", "").says("a page");
    let in_flight = || gateway.metric("hsmux_gateway_handshakes_in_flight");
    assert!(in_flight() > 0, "others were to be served meanwhile");
    for (begun, stream) in stopped {
        assert!(!rest(stream).is_empty(), "the server's part of a handshake");
        assert!(begun.elapsed() > LIMIT, "{:?}", begun.elapsed());
    }
    until("all are let go", PATIENCE, || {
        let slow = gateway.metric("hsmux_gateway_refused_total{reason=\"slow\"}");
        (in_flight() == 0 && slow == 1000).then_some(())
    });
    let count = |what| signatures(&gateway, what);
    let all = (count("total"), count("failed_total"), count("waiting"));
    assert_eq!(all, (1002, 0, 0));
    let held = peak(&gateway) - before;
    assert!(held < 1000 * COST, "{held} kB more for a thousand clients");
    assert_eq!(status(&gateway, "THP_enabled:"), 0, "huge pages");
}

const WAITING: usize = 2000;

/// The card hangs until the test releases it. Meanwhile only handshakes wait.
#[test]
fn thousands_of_waiting_handshakes_delay_no_connection_and_no_resumption() {
    let (mut rig, mut cards) = cards(&["card"]);
    rig.config.pool.push_str("\nqueue = 4000");
    let gateway = start(rig, "sign_timeout = \"120s\"");
    let mut open = balancer::Client::connect(gateway.port());
    open.ask();
    let begun = gateway.s_client("-tls1_3 -sess_out session", ASK);
    assert!(begun.contains("a page"), "{begun}");
    let count = |what| signatures(&gateway, what);
    let before = count("total");

    cards.set_all("hang_in_sign = true");
    let stopped = stopped(&gateway, WAITING / 2);
    let wait = || (count("waiting") == WAITING as u64).then_some(());
    until("all wait for signatures", PATIENCE, wait);

    let mut times: Vec<_> = (0..300).map(|_| timed(|| open.ask())).collect();
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(500), "{p99:?}");
    let resumed = gateway.s_client("-tls1_3 -sess_in session", ASK);
    assert!(resumed.contains("Reused"), "{resumed}");
    assert!(resumed.contains("a page"), "{resumed}");
    assert!(wait().is_some(), "none was to end, and none to come");
    assert_eq!(count("total"), before);

    cards.set_all("");
    until("each has its signature", PATIENCE, || {
        (count("total") == before + WAITING as u64).then_some(())
    });
    assert_eq!((count("failed_total"), count("waiting")), (0, 0));
    drop(stopped);
}

fn timed(ask: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    ask();
    begun.elapsed()
}
