//! Clients of HTTP/2 that do not take their answers, or flood the gateway with frames.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use boring::ssl::SslStream;
use hsmux_suite::{PATIENCE, until};

use crate::h2::{
    self, DATA, END, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WHOLE, WINDOW_UPDATE,
};
use crate::hosts::connect;
use crate::rig::{BOTH, FOLDER, Gateway};

/// The default of `[gateway] memory`.
const BUDGET: u64 = 64 << 20;
/// Limit of the whole process, with tokens and connections.
const PROCESS: u64 = 150 << 20;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a short frame")
        .to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn get(stream: u32, path: &str) -> Vec<u8> {
    let head = [
        &[0x82, 0x87],
        &*h2::field(1, "a.test"),
        &*h2::field(4, path),
    ]
    .concat();
    frame(HEADERS, WHOLE, stream, &head)
}

/// A client that requests a page 256 times, and takes `window` bytes of each answer.
fn stalled(gateway: &Gateway, window: u32, path: &str) -> SslStream<TcpStream> {
    let mut client = connect(gateway, "a.test", "h2");
    let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
    let mut said = [PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat();
    for stream in (1..512).step_by(2) {
        said.extend(get(stream, path));
    }
    client.write_all(&said).expect("requests");
    client
}

/// Memory of the gateway's process in bytes: current and peak.
pub fn resident(gateway: &Gateway) -> (u64, u64) {
    let pid = gateway.process();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.expect("a field").trim().trim_end_matches(" kB");
        number.parse::<u64>().expect("a number") << 10
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// These clients once took 582 MB.
#[test]
fn stalled_clients_share_one_budget_and_delay_no_others() {
    for (window, path, length) in [(0, "/page.bin", 100_000), (1, "/long.bin", 3 << 20)] {
        let rig = Gateway::prepare();
        fs::write(rig.path(&format!("www{path}")), vec![b'a'; length]).expect("a page");
        let gateway = Gateway::start(rig, "", &format!("[[site]]\n{BOTH}\n{FOLDER}"));
        let before = resident(&gateway).0;
        let clients: Vec<_> = (0..200).map(|_| stalled(&gateway, window, path)).collect();
        let held = until("what can be held is held", PATIENCE, || {
            let held = gateway.metric("hsmux_gateway_memory_bytes");
            (held > BUDGET / 2).then_some(held)
        });
        for _ in 0..5 {
            gateway
                .curl("a.test", "/page.txt", "--http2")
                .says("a page");
        }
        let long = gateway.curl(
            "a.test",
            path,
            "--http2 --output /dev/null --write-out %{size_download}",
        );
        long.says(&length.to_string());
        until("stalled clients are let go", PATIENCE, || {
            let closed = gateway.metric("hsmux_gateway_closed_total{reason=\"memory\"}");
            let held = gateway.metric("hsmux_gateway_memory_bytes");
            (closed > 0 && held <= BUDGET / 4 * 3).then_some(())
        });
        let (after, most) = resident(&gateway);
        println!("before {before}, held {held}, after {after}, at most {most}");
        assert!(most < PROCESS, "{before} {after} {most}");
        drop(clients);
        until("all is given back", PATIENCE, || {
            (gateway.metric("hsmux_gateway_memory_bytes") == 0).then_some(())
        });
    }
}

/// Sends bytes so many times, and reads the answers. `false`: the connection has ended.
fn flood(gateway: &Gateway, times: u32, say: impl Fn(u32) -> Vec<u8>) -> bool {
    let mut client = connect(gateway, "a.test", "h2");
    client
        .write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())
        .expect("a preface");
    for time in 0..times {
        if client.write_all(&say(time)).is_err() {
            return false;
        }
        if time % 50 == 0 {
            client.get_ref().set_nonblocking(true).expect("a socket");
            loop {
                match client.read(&mut [0; 16384]) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    _ => return false,
                }
            }
            client.get_ref().set_nonblocking(false).expect("a socket");
        }
    }
    // The answer to this ping comes after all others.
    let last = [0xab; 8];
    if client.write_all(&frame(PING, 0, 0, &last)).is_err() {
        return false;
    }
    let (mut heard, mut bytes) = (Vec::new(), [0; 16384]);
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        heard.extend_from_slice(&bytes[..read]);
        if heard.windows(last.len()).any(|part| part == last) {
            return true;
        }
    }
    false
}

/// gRPC clients send a ping for each part that they receive.
#[test]
fn a_ping_for_each_received_part_is_no_flood() {
    let gateway = Gateway::with_folder();
    let mut client = connect(&gateway, "a.test", "h2");
    client
        .write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())
        .expect("a preface");
    let ping = frame(PING, 0, 0, &[7; 8]);
    for time in 0..1500 {
        let asked = [get(2 * time + 1, "/page.txt"), ping.clone(), ping.clone()].concat();
        client.write_all(&asked).expect("a request");
        while !matches!(h2::read(&mut client).expect("a frame"), (DATA, flags, _) if flags & END != 0)
        {
        }
    }
    let closed = gateway.metric("hsmux_gateway_closed_total{reason=\"flood\"}");
    assert_eq!(closed, 0);
}

#[test]
fn floods_of_small_frames_end_their_connection() {
    let gateway = Gateway::with_folder();
    let ping = |_| frame(PING, 0, 0, &[7; 8]);
    let settings = |_| frame(SETTINGS, 0, 0, &[]);
    let reset = |time: u32| {
        let stream = 2 * time + 1;
        [
            get(stream, "/page.txt"),
            frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        ]
        .concat()
    };
    assert!(flood(&gateway, 500, ping));
    let closed = || gateway.metric("hsmux_gateway_closed_total{reason=\"flood\"}");
    assert_eq!(closed(), 0);
    assert!(!flood(&gateway, 20_000, ping));
    assert!(!flood(&gateway, 20_000, settings));
    let update = |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    assert!(!flood(&gateway, 50_000, update));
    assert_eq!(closed(), 3);
    // One is enough, because h2 would log each.
    assert!(!flood(&gateway, 1, |_| frame(PING, 1, 0, &[7; 8])));
    assert_eq!(closed(), 4);
    // h2 itself may end it earlier.
    assert!(!flood(&gateway, 20_000, reset));
    gateway.curl("a.test", "/page.txt", "").says("a page");
}

/// The number of connections is limited: the oldest ones are closed.
#[test]
fn the_page_of_metrics_is_served_beside_silent_connections() {
    let gateway = Gateway::with_folder();
    let connect = |_| TcpStream::connect(&gateway.metrics).expect("a connection");
    let silent: Vec<_> = (0..300).map(connect).collect();
    assert_eq!(gateway.metric("hsmux_gateway_closed_total"), 0);
    let has_ended = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("ask without waiting");
        matches!((&*stream).read(&mut [0]), Ok(0))
    };
    // All end after ten seconds, the oldest at once.
    until("the oldest are closed", Duration::from_secs(9), || {
        let ended = silent.iter().filter(|stream| has_ended(stream)).count();
        (ended >= 300 - 64).then_some(())
    });
    gateway.curl("a.test", "/page.txt", "").says("a page");
}

#[test]
fn a_request_of_the_page_of_metrics_has_ten_seconds() {
    let gateway = Gateway::with_folder();
    let begun = Instant::now();
    let silent = ["", "GET /metrics HTTP/1.1\r\nHost: a"].map(|begin| {
        let mut stream = TcpStream::connect(&gateway.metrics).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.write_all(begin.as_bytes()).expect("the gateway");
        stream
    });
    for mut stream in silent {
        stream.read_to_end(&mut Vec::new()).expect("an end");
        let waited = begun.elapsed();
        assert!((10..60).contains(&waited.as_secs()), "{waited:?}");
    }
}
