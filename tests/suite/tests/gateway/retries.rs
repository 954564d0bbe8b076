//! Which requests are sent to a backend again.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hsmux_suite::Finished;

use crate::backends::{backend, head, in_front_of, request};
use crate::h2;
use crate::rig::Gateway;

/// Backends that answer the first request on each connection, and close it after they have read a second one. They
/// count the requests.
const BACKENDS: [(&str, Serve); 2] = [("http", http1), ("h2c", http2)];
type Serve = fn(&TcpStream, &AtomicUsize);

fn http1(mut stream: &TcpStream, asked: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    for answer in ["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""] {
        if request(&mut reader).is_empty() {
            return;
        }
        asked.fetch_add(1, Relaxed);
        stream.write_all(answer.as_bytes()).expect("the gateway");
    }
}

fn http2(mut stream: &TcpStream, asked: &AtomicUsize) {
    let mut preface = [0; h2::PREFACE.len()];
    stream.read_exact(&mut preface).expect("a preface");
    h2::write(&mut stream, h2::SETTINGS, 0, h2::ALL, &[]).expect("settings");
    let mut requests = 0;
    while let Ok((kind, flags, _)) = h2::read(&mut stream) {
        if [h2::HEADERS, h2::DATA].contains(&kind) && flags & h2::END != 0 {
            asked.fetch_add(1, Relaxed);
            requests += 1;
            if requests == 2 {
                return;
            }
            h2::write(&mut stream, h2::HEADERS, h2::WHOLE, 1, &[h2::OK]).expect("the gateway");
        }
    }
}

/// `REFUSED_STREAM` (RFC 9113, section 7).
const REFUSED: [u8; 4] = [0, 0, 0, 7];

/// Refuses each request before it is processed, and counts it.
fn refuses(mut stream: &TcpStream, asked: &AtomicUsize) {
    let mut preface = [0; h2::PREFACE.len()];
    stream.read_exact(&mut preface).expect("a preface");
    h2::write(&mut stream, h2::SETTINGS, 0, h2::ALL, &[]).expect("settings");
    let mut id = 1;
    while let Ok((kind, flags, _)) = h2::read(&mut stream) {
        if [h2::HEADERS, h2::DATA].contains(&kind) && flags & h2::END != 0 {
            asked.fetch_add(1, Relaxed);
            h2::write(&mut stream, h2::RST_STREAM, 0, id, &REFUSED).expect("the gateway");
            id += 2;
        }
    }
}

/// Opens a connection by a first request, and sends a second one, which is lost with it. Returns the answer to the
/// second one, and how often it was sent.
fn lost(gateway: &Gateway, asked: &AtomicUsize, ask: &str) -> (Finished, usize) {
    gateway.curl("a.test", "/", "").says(" 200");
    let before = asked.load(Relaxed);
    let answer = gateway.curl("a.test", "/", ask);
    (answer, asked.load(Relaxed) - before)
}

#[test]
fn only_safe_requests_are_sent_again() {
    let unsafe_or_with_a_body = [
        "--request POST",
        "--data body",
        "--request PUT",
        "--request PATCH --data body",
        "--request DELETE",
        "--request GET --data body",
    ];
    for (scheme, serve) in BACKENDS {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let gateway = in_front_of(scheme, &backend(move |s| serve(&s, &count)), "");
        for ask in unsafe_or_with_a_body {
            let (answer, sent) = lost(&gateway, &asked, ask);
            answer.says(" 502");
            assert_eq!(sent, 1, "{scheme} {ask}");
        }
        for ask in ["", "--head", "--request OPTIONS"] {
            let (answer, sent) = lost(&gateway, &asked, ask);
            answer.says(" 200");
            assert_eq!(sent, 2, "{scheme} {ask}");
        }
    }
}

#[test]
fn a_safe_request_is_sent_three_times_at_most() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let gateway = in_front_of("h2c", &backend(move |s| refuses(&s, &count)), "");
    for (ask, sent) in [("", 3), ("--request POST", 1)] {
        let before = asked.load(Relaxed);
        gateway.curl("a.test", "/", ask).says(" 502");
        assert_eq!(asked.load(Relaxed) - before, sent, "{ask}");
    }
}

/// The rest of the request is read and dropped. If it were left unread the answer would be lost.
#[test]
fn a_client_that_is_still_sending_gets_its_answer() {
    let closes = |stream: TcpStream| drop(head(&mut BufReader::new(stream)));
    let gateway = in_front_of("http", &backend(closes), "");
    let file = gateway.rig.path("body");
    for length in [4, 300_000] {
        std::fs::write(&file, vec![b'x'; length]).expect("a file");
        for version in ["--http1.1", "--http2"] {
            for _ in 0..20 {
                let ask = format!(
                    "{version} --expect100-timeout 0.01 --data-binary @{}",
                    file.display()
                );
                gateway.curl("a.test", "/", &ask).says(" 502");
            }
        }
    }
}
