//! Open connections of clients with certificates, after `client_ca` or the server's certificate has changed.

use std::fs;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;

use boring::ssl::{SslFiletype, SslStream, SslVersion};
use hsmux_suite::pki::{ALWAYS, Authority};
use hsmux_suite::{PATIENCE, Rig, until};

use crate::backends::{backend, mirror};
use crate::h2;
use crate::hosts::{connector, tls_handshake_by};
use crate::rig::{BOTH, Gateway, certify};
use crate::sites::is_answered;
use crate::websockets::{self, websocket};

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_3, SslVersion::TLS1_2];

/// A site that trusts the authority `old`, which has issued `one.pem`. The authority `new` has issued `two.pem`.
fn start(backend: &str) -> Gateway {
    let rig = Gateway::prepare();
    for (name, client) in [("old", "one"), ("new", "two")] {
        let authority = Authority::new(&rig, name);
        authority.issue(&rig, client, "DNS:client.example", ALWAYS);
    }
    write_roots(&rig, &["old"]);
    let site = format!("[[site]]\n{BOTH}\nbackend = \"{backend}\"\nclient_ca = \"clients.pem\"");
    Gateway::start(rig, "", &site)
}

/// Writes the certificates of these authorities to `client_ca`.
fn write_roots(rig: &Rig, authorities: &[&str]) {
    let read = |name: &&str| fs::read_to_string(rig.path(&format!("{name}.pem")));
    let roots: Result<String, _> = authorities.iter().map(read).collect();
    fs::write(rig.path("clients.new"), roots.expect("certificates")).expect("a file");
    // By rename, so that the gateway reads the whole file.
    fs::rename(rig.path("clients.new"), rig.path("clients.pem")).expect("new roots");
}

/// Changes `client_ca` to these authorities, and waits until all connections are notified.
fn trust(gateway: &Gateway, authorities: &[&str]) {
    until_read_again(gateway, || write_roots(&gateway.rig, authorities));
}

fn until_read_again(gateway: &Gateway, change: impl FnOnce()) {
    let count = || log(gateway).matches("has read its sites again").count();
    let before = count();
    change();
    until("the sites are read again", PATIENCE, || {
        (count() > before).then_some(())
    });
}

fn log(gateway: &Gateway) -> String {
    gateway.rig.daemon.as_ref().expect("a daemon").log()
}

/// Whether the gateway has ended a connection because of its client's certificate. An idle one ends without it.
fn has_refused(gateway: &Gateway) -> bool {
    log(gateway).contains("its certificate does not lead to client_ca")
}

/// A connection with the certificate `NAME.pem`.
fn connect(
    gateway: &Gateway,
    name: &str,
    version: SslVersion,
    protocol: &str,
) -> SslStream<TcpStream> {
    let file = |end: &str| gateway.rig.path(&format!("{name}.{end}"));
    let mut connector = connector(protocol);
    let limited = connector.set_max_proto_version(Some(version));
    limited.expect("a version");
    let own = connector.set_certificate_file(file("pem"), SslFiletype::PEM);
    own.expect("a certificate");
    let key = connector.set_private_key_file(file("key"), SslFiletype::PEM);
    key.expect("its key");
    let stream = TcpStream::connect(&gateway.address).expect("a connection");
    tls_handshake_by(connector, stream, "a.test")
}

#[test]
fn an_open_connection_ends_when_client_ca_no_longer_has_its_root() {
    let gateway = start(&format!("http://{}", backend(mirror)));
    let open = |name: &str| {
        VERSIONS.map(|version| BufReader::new(connect(&gateway, name, version, "http/1.1")))
    };
    let mut old = open("one");
    assert!(old.iter_mut().all(is_answered));
    trust(&gateway, &["old", "new"]);
    let mut new = open("two");
    assert!(old.iter_mut().chain(&mut new).all(is_answered));
    assert!(!has_refused(&gateway), "{}", log(&gateway));
    trust(&gateway, &["new"]);
    assert!(!old.iter_mut().any(is_answered));
    assert!(new.iter_mut().all(is_answered));
    assert!(has_refused(&gateway), "{}", log(&gateway));
}

/// True if the answer to a request on a new stream of HTTP/2 is 200.
fn is_answered_on(stream: &mut SslStream<TcpStream>, id: u8) -> bool {
    let head = [
        &[0x82, 0x87][..],
        &h2::field(1, "a.test"),
        &h2::field(4, "/private"),
    ]
    .concat();
    // It fails if the gateway has closed the connection.
    let _ = h2::write(stream, h2::HEADERS, h2::WHOLE, id, &head);
    while let Ok((kind, _, payload)) = h2::read(stream) {
        if kind == h2::HEADERS {
            return payload.first() == Some(&h2::OK);
        }
    }
    false
}

#[test]
fn an_open_connection_of_http2_gets_no_answer_when_client_ca_no_longer_has_its_root() {
    let gateway = start(&format!("http://{}", backend(mirror)));
    let mut stream = connect(&gateway, "one", SslVersion::TLS1_3, "h2");
    stream.write_all(h2::PREFACE).expect("a preface");
    h2::write(&mut stream, h2::SETTINGS, 0, h2::ALL, &[]).expect("settings");
    assert!(is_answered_on(&mut stream, 1));
    trust(&gateway, &["old", "new"]);
    assert!(is_answered_on(&mut stream, 3));
    trust(&gateway, &["new"]);
    assert!(!is_answered_on(&mut stream, 5));
    assert!(has_refused(&gateway), "{}", log(&gateway));
}

/// Sends back what it reads, until the end.
fn echo(stream: &mut TcpStream) {
    let mut reader = stream.try_clone().expect("a copy");
    let _ = io::copy(&mut reader, stream);
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads up to and including a word.
fn read_to(stream: &mut impl Read, word: &str) {
    let mut said = Vec::new();
    while !said.ends_with(word.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a word");
        said.extend(byte);
    }
}

#[test]
fn a_tunnel_ends_when_client_ca_no_longer_has_its_root() {
    for (scheme, ask) in [("http", websockets::ASK), ("tcp", "hello")] {
        let (tell, told) = mpsc::channel();
        let address = backend(move |mut stream| {
            if scheme == "http" {
                websocket(stream, |stream, word| {
                    stream.write_all(&word).expect("a client");
                    echo(stream);
                });
            } else {
                echo(&mut stream);
            }
            let _ = tell.send(());
        });
        let gateway = start(&format!("{scheme}://{address}"));
        let mut stream = connect(&gateway, "one", SslVersion::TLS1_3, "http/1.1");
        stream.write_all(ask.as_bytes()).expect("a request");
        read_to(&mut stream, "hello");
        trust(&gateway, &["old", "new"]);
        stream.write_all(b"again").expect("a tunnel");
        read_to(&mut stream, "again");
        assert!(told.try_recv().is_err(), "{scheme}: it has ended early");
        trust(&gateway, &["new"]);
        told.recv_timeout(PATIENCE).expect("an end at the backend");
        let ended = match stream.read(&mut [0]) {
            Ok(read) => read == 0,
            // The time limit of the socket.
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        assert!(ended, "{scheme}: the client's connection is open");
        assert!(has_refused(&gateway), "{scheme}: {}", log(&gateway));
    }
}

#[test]
fn a_renewed_certificate_of_the_server_ends_no_connection() {
    let gateway = start(&format!("http://{}", backend(mirror)));
    let mut open =
        VERSIONS.map(|version| BufReader::new(connect(&gateway, "one", version, "http/1.1")));
    assert!(open.iter_mut().all(is_answered));
    let renewed = certify(&gateway.rig, "renewed", "ec", 60);
    until_read_again(&gateway, || {
        fs::rename(renewed, gateway.rig.path("ec.pem")).expect("a certificate");
    });
    let stream = connect(&gateway, "one", SslVersion::TLS1_3, "http/1.1");
    let shown = stream.ssl().peer_certificate().expect("a certificate");
    let subject = format!("{:?}", shown.subject_name());
    assert!(subject.contains("renewed"), "{subject}");
    assert!(open.iter_mut().all(is_answered));
    let log = log(&gateway);
    assert!(!log.contains("a client's connection is ended"), "{log}");
}
