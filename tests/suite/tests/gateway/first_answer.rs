//! Clients without TCP_NODELAY, such as siege, ab and Python. Their kernel holds back the first request until the end
//! of the handshake is acknowledged (Nagle's algorithm). The gateway's kernel may delay that by 40 ms.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use boring::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use hsmux_suite::PATIENCE;

use crate::rig::{ASK, BOTH, FOLDER, Gateway};

/// The shortest delay of an acknowledgment on Linux.
const DELAYED: Duration = Duration::from_millis(40);

/// A connection with default options.
pub fn connect(gateway: &Gateway) -> SslStream<TcpStream> {
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

/// The fastest of many first answers: on a busy machine some are late.
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

/// They carry the acknowledgment, also through a proxy.
#[test]
fn tickets_are_sent_before_the_first_request() {
    let gateway = Gateway::with_folder();
    let stream = connect(&gateway);
    let there = stream.get_ref().peek(&mut [0; 5]).expect("tickets");
    assert_eq!(there, 5);
}
