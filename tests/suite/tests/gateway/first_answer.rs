//! Clients that leave TCP_NODELAY alone, as siege, ab and Python do: their kernel keeps a request back until all that
//! was sent before it, the end of the handshake, is acknowledged (Nagle), and ours has 40 ms for that.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use boring::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use hsmux_suite::PATIENCE;

use crate::rig::{ASK, BOTH, FOLDER, Gateway};

/// The least that Linux waits with an acknowledgment that nothing takes along.
const DELAYED: Duration = Duration::from_millis(40);

/// A connection as a program has it that sets nothing.
fn connect(gateway: &Gateway) -> SslStream<TcpStream> {
    let mut connector = SslConnector::builder(SslMethod::tls()).expect("a context");
    connector.set_verify(SslVerifyMode::NONE);
    let stream = TcpStream::connect(&gateway.address).expect("a connection");
    assert!(!stream.nodelay().expect("an option"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let config = connector.build().configure().expect("a configuration");
    let config = config.verify_hostname(false);
    let stream = config.connect("a.test", stream).expect("a handshake");
    assert_eq!(stream.ssl().version_str(), "TLSv1.3");
    stream
}

/// How long the fastest of many first answers takes: on a busy machine some are late.
fn fastest(gateway: &Gateway) -> Duration {
    let answer = || {
        let mut stream = connect(gateway);
        let asked = Instant::now();
        stream.write_all(ASK.as_bytes()).expect("a request");
        stream.read_exact(&mut [0; 12]).expect("an answer");
        asked.elapsed()
    };
    (0..20).map(|_| answer()).min().expect("an answer")
}

#[test]
fn the_first_answer_waits_for_no_acknowledgment() {
    for lines in ["", "tickets = false"] {
        let site = format!("[[site]]\n{BOTH}\n{FOLDER}");
        let gateway = Gateway::start(Gateway::prepare(), lines, &site);
        let took = fastest(&gateway);
        assert!(took < DELAYED, "{lines}: {took:?}");
    }
}

/// They take the acknowledgment along, also through a proxy.
#[test]
fn tickets_leave_before_the_request_comes() {
    let gateway = Gateway::with_folder();
    let stream = connect(&gateway);
    let there = stream.get_ref().peek(&mut [0; 5]).expect("tickets");
    assert_eq!(there, 5);
}
