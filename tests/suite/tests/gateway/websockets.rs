//! WebSocket over HTTP/1.1 and HTTP/2. The backends speak HTTP/1.1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hsmux_suite::{PATIENCE, until};

use crate::backends::{backend, head, in_front_of, mirror};
use crate::h2::Client;
use crate::hosts::say;
use crate::rig::{BOTH, Gateway};

/// `:status 200` (RFC 7541, appendix A).
pub const AGREED: u8 = 0x88;

/// Accepts a WebSocket (RFC 6455, section 4.2.2), reads five bytes and passes them to `say`.
pub fn websocket(mut stream: TcpStream, say: impl Fn(&mut TcpStream, [u8; 5])) {
    let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
    let mut text = String::new();
    while reader.read_line(&mut text).is_ok_and(|length| length > 2) {}
    let lower = text.to_ascii_lowercase();
    for part in [
        "get /chat http/1.1",
        "upgrade: websocket",
        "connection: upgrade",
        "host: a.test",
    ] {
        assert!(lower.contains(part), "{text}");
    }
    let name = "sec-websocket-key: ";
    let key = lower.find(name).map(|at| &text[at + name.len()..]);
    let key = key.and_then(|rest| rest.lines().next()).expect("a key");
    let accept = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = STANDARD.encode(boring::sha::sha1(accept.as_bytes()));
    let agreed = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(agreed.as_bytes()).expect("a client");
    let mut word = [0; 5];
    reader.read_exact(&mut word).expect("five bytes");
    say(&mut stream, word);
}

/// Sends the word twice.
pub fn twice(stream: &mut TcpStream, word: [u8; 5]) {
    stream.write_all(&[word, word].concat()).expect("a client");
}

/// Asks for a WebSocket, and sends a word.
pub const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\nhello";

#[test]
fn a_websocket_is_relayed() {
    let gateway = in_front_of("http", &backend(|stream| websocket(stream, twice)), "");
    let said = gateway.s_client("-quiet -alpn http/1.1", ASK);
    assert!(said.contains("101 Switching Protocols"), "{said}");
    assert!(said.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{said}");
    assert!(said.contains("hellohello"), "{said}");
}

#[test]
fn a_websocket_counts_as_a_connection() {
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let gone = Mutex::new(gone);
    let address = backend(move |stream| {
        websocket(stream, |stream, word| {
            tell.send(()).expect("the test");
            gone.lock().expect("the test").recv().expect("the test");
            twice(stream, word);
        });
    });
    let gateway = in_front_of("http", &address, "");
    thread::scope(|scope| {
        let client = scope.spawn(|| gateway.s_client("-quiet -alpn http/1.1", ASK));
        told.recv().expect("a word");
        assert_eq!(gateway.metric("hsmux_gateway_connections"), 1);
        go.send(()).expect("the backend");
        assert!(client.join().expect("a client").contains("hellohello"));
    });
    until("it has gone", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections") == 0).then_some(())
    });
}

/// Both ends only wait for each other.
#[test]
fn an_idle_websocket_is_closed() {
    let (tell, told) = mpsc::channel();
    let address = backend(move |stream| {
        websocket(stream, |stream, word| {
            twice(stream, word);
            let _ = tell.send(stream.read(&mut [0]).is_ok_and(|read| read == 0));
        });
    });
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{address}\"");
    let gateway = Gateway::start(Gateway::prepare(), "tunnel_timeout = \"3s\"", &site);
    let said = gateway.s_client("-quiet -alpn http/1.1", ASK);
    assert!(said.contains("hellohello"), "{said}");
    assert!(told.recv_timeout(PATIENCE).expect("an end"));
}

/// A WebSocket does not count as idle while nothing is sent.
#[test]
fn a_websocket_is_relayed_over_http2() {
    let slow = Duration::from_millis(2500);
    let address = backend(move |stream| {
        websocket(stream, |stream, word| {
            thread::sleep(slow);
            twice(stream, word);
        });
    });
    let site = format!("[[site]]\n{BOTH}\nbackend = \"http://{address}\"");
    let gateway = Gateway::start(Gateway::prepare(), "idle_timeout = \"1s\"", &site);
    let mut client = Client::open(&gateway.address);
    assert_eq!(
        client.connect_protocol("a.test", "/chat", "websocket"),
        AGREED
    );
    client.say(b"hello");
    assert_eq!(client.hear(), b"hellohello");
    assert_eq!(
        gateway.metric("hsmux_gateway_requests_total{class=\"2xx\"}"),
        1
    );
}

/// Any success status would tell the client that the stream is a WebSocket.
#[test]
fn a_failed_upgrade_over_http2_is_no_success() {
    let wrong = backend(|mut stream| {
        head(&mut BufReader::new(stream.try_clone().expect("a copy")));
        let agreed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\nSec-WebSocket-Accept: another\r\n\r\n";
        stream.write_all(agreed.as_bytes()).expect("a client");
    });
    for (address, protocol, class) in [
        (backend(mirror), "websocket", "5xx"),
        (wrong, "websocket", "5xx"),
        (backend(mirror), "connect-udp", "4xx"),
    ] {
        let gateway = in_front_of("http", &address, "");
        let mut client = Client::open(&gateway.address);
        let status = client.connect_protocol("a.test", "/chat", protocol);
        assert_ne!(status, AGREED);
        let series = format!("hsmux_gateway_requests_total{{class=\"{class}\"}}");
        assert_eq!(gateway.metric(&series), 1, "{address} {protocol}");
    }
}

/// A request for a protocol that is not allowed is handled as plain HTTP/1.1 (RFC 9110, section 7.8).
#[test]
fn only_allowed_protocols_are_upgraded() {
    let ask = |protocol: &str| {
        let lines = format!("Connection: Upgrade, close\r\nUpgrade: {protocol}\r\n");
        format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\nhello")
    };
    for (more, protocols) in [
        ("", &["h2c", "TLS/1.2", "other, websocket"][..]),
        ("upgrades = []", &["websocket"]),
    ] {
        let gateway = in_front_of("http", &backend(mirror), more);
        for protocol in protocols {
            let said = say(&gateway, "a.test", ask(protocol).as_bytes());
            assert!(said.starts_with("HTTP/1.1 200 "), "{protocol}: {said}");
            assert!(!said.contains("\nupgrade:"), "{protocol}: {said}");
        }
    }
    for (protocol, agreed) in [("other/2", true), ("another", false)] {
        let address = backend(move |mut stream| {
            let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
            let head = head(&mut reader);
            assert!(head.contains("\nupgrade: other/2\r\n"), "{head}");
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).expect("a client");
            let mut word = [0; 5];
            // None comes if the answer named another protocol.
            if reader.read_exact(&mut word).is_ok() {
                twice(&mut stream, word);
            }
        });
        let gateway = in_front_of("http", &address, "upgrades = [\"other/2\"]");
        let said = say(&gateway, "a.test", ask("Other/2").as_bytes());
        assert_eq!(said.contains("hellohello"), agreed, "{said}");
        assert_eq!(said.starts_with("HTTP/1.1 502 "), !agreed, "{said}");
    }
}
