//! Clients that send garbage or nothing, or stop.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use hsmux_suite::{PATIENCE, Run, until};

use crate::h2;
use crate::rig::{BOTH, FOLDER, Gateway};

/// The beginning of a record with a ClientHello of 512 bytes.
const STOPS: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

pub fn with(lines: &str) -> Gateway {
    Gateway::start(
        Gateway::prepare(),
        lines,
        &format!("[[site]]\n{BOTH}\n{FOLDER}"),
    )
}

pub fn client(gateway: &Gateway, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&gateway.address).expect("a connection");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    stream.write_all(first).expect("the first bytes");
    stream
}

/// Reads until the gateway closes or resets the connection.
pub fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // Closing with unread bytes resets the connection.
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    said
}

#[test]
fn http_without_tls_gets_a_readable_answer() {
    let gateway = with("");
    let url = format!("http://{}/", gateway.address);
    let said = Run::new("curl")
        .args("--silent --include --max-time 60")
        .arg(url)
        .ok();
    said.says("400 Bad Request").says("https://");
    assert_eq!(
        gateway.metric("hsmux_gateway_refused_total{reason=\"plain-http\"}"),
        1
    );
}

#[test]
fn garbage_ends_only_its_own_connection() {
    let gateway = with("");
    let garbage: [&[u8]; 4] = [
        &[0; 64],
        &[0xff; 64],
        &[22, 3, 1, 0xff, 0xff, 1],
        b"\r\n\r\n\r\n",
    ];
    for bytes in garbage {
        rest(client(&gateway, bytes));
    }
    until("all were refused", PATIENCE, || {
        let refused = |reason| gateway.metric(&format!("hsmux_gateway_refused_total{reason}"));
        let counted = (refused("{reason=\"tls\"}"), refused(""));
        (counted == (4, 4)).then_some(())
    });
    gateway.curl("a.test", "/page.txt", "").says("a page");
}

#[test]
fn silent_clients_are_dropped_and_delay_no_others() {
    let gateway = with("handshake_timeout = \"2s\"\nhandshakes = 3000");
    let silent: Vec<_> = (0..1000).map(|_| client(&gateway, b"")).collect();
    let stopped: Vec<_> = (0..1000).map(|_| client(&gateway, STOPS)).collect();
    // On a busy machine a client may be too slow itself, and tries again.
    until("others are served", PATIENCE, || {
        let answer = gateway.curl("a.test", "/page.txt", "");
        answer.out.contains("a page").then_some(())
    });
    for stream in silent.into_iter().chain(stopped) {
        rest(stream);
    }
    until("all are let go", PATIENCE, || {
        let left = gateway.metric("hsmux_gateway_handshakes_in_flight");
        let slow = gateway.metric("hsmux_gateway_refused_total{reason=\"slow\"}");
        (left == 0 && slow >= 2000).then_some(())
    });
}

/// `R` requests renegotiation. The client's input stays open, so it is the gateway that ends the connection.
#[test]
fn renegotiation_is_refused() {
    let gateway = with("");
    let mut client = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-connect", &gateway.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut words = client.stdin.take().expect("its words");
    until("its first handshake", PATIENCE, || {
        (gateway.metric("hsmux_gateway_handshakes_total") == 1).then_some(())
    });
    words.write_all(b"R\n").expect("a word");
    until("it is let go", PATIENCE, || {
        client.try_wait().expect("a client to look at")
    });
    let mut said = String::new();
    let mut errors = client.stderr.take().expect("its errors");
    errors.read_to_string(&mut said).expect("a text");
    assert!(said.contains("RENEGOTIATING"), "{said}");
    assert!(said.contains("alert no renegotiation"), "{said}");
    assert_eq!(gateway.metric("hsmux_gateway_signatures_total"), 1);
    assert_eq!(gateway.metric("hsmux_gateway_handshakes_total"), 1);
    gateway.curl("a.test", "/page.txt", "").says("a page");
}

#[test]
fn too_many_handshakes_are_refused_at_once() {
    let gateway = with("handshakes = 16\nsource_handshakes = 16\nhandshake_timeout = \"60s\"");
    let held: Vec<_> = (0..16).map(|_| client(&gateway, STOPS)).collect();
    until("all places are taken", PATIENCE, || {
        (gateway.metric("hsmux_gateway_handshakes_in_flight") == 16).then_some(())
    });
    assert!(rest(client(&gateway, b"")).is_empty());
    assert_eq!(
        gateway.metric("hsmux_gateway_refused_total{reason=\"handshakes\"}"),
        1
    );
    drop(held);
    until("there is room again", PATIENCE, || {
        gateway
            .curl("a.test", "/page.txt", "")
            .out
            .contains("a page")
            .then_some(())
    });
}

/// The client never reads. A part of the answer fits into the sockets' buffers.
#[test]
fn a_client_that_does_not_read_is_dropped() {
    let rig = Gateway::prepare();
    let long = vec![b'x'; 64 << 20];
    std::fs::write(rig.path("www/long"), long).expect("a long file");
    let gateway = Gateway::start(
        rig,
        "idle_timeout = \"1s\"",
        &format!("[[site]]\n{BOTH}\n{FOLDER}"),
    );
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &gateway.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a client");
    let request = b"GET /long HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let mut words = client.stdin.take().expect("its words");
    words.write_all(request).expect("a request");
    until("it is served", PATIENCE, || {
        (gateway.metric("hsmux_gateway_requests_total") == 1).then_some(())
    });
    until("it is let go", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections") == 0).then_some(())
    });
    client.kill().expect("a client to end");
    client.wait().expect("its end");
}

/// Its windows are closed, but it answers every ping.
#[test]
fn a_client_with_closed_windows_is_dropped() {
    let gateway = with("idle_timeout = \"1s\"");
    let mut client = h2::Client::closed(&gateway.address);
    client.ask("a.test", "/page.txt");
    client.answer_pings();
    assert_eq!(gateway.metric("hsmux_gateway_requests_total"), 1);
    until("it is let go", PATIENCE, || {
        (gateway.metric("hsmux_gateway_connections") == 0).then_some(())
    });
}

/// The client sends its second request a little later. hyper has no idle limit for HTTP/2.
#[test]
fn an_idle_connection_is_closed() {
    for (idle, connections) in [("1s", ["1", "1"]), ("60s", ["1", "0"])] {
        let gateway = with(&format!("idle_timeout = \"{idle}\""));
        let again =
            "https://a.test/page.txt --http2 --rate 15/m --output - --write-out :%{num_connects}:";
        let answer = gateway.curl("a.test", "/page.txt", again);
        let said = answer.out.split(':').filter(|part| part.len() == 1);
        assert_eq!(said.collect::<Vec<_>>(), connections, "{}", answer.all());
    }
}
