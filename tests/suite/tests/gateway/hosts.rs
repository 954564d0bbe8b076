//! Requests for other sites than that of their connection, and the host that back ends get.

use std::io::{Read, Write};
use std::net::TcpStream;

use boring::ssl::{SslConnector, SslConnectorBuilder, SslMethod, SslStream, SslVerifyMode};
use hsmux_suite::PATIENCE;

use crate::backends::{backend, in_front_of, mirror};
use crate::h2;
use crate::rig::{BOTH, Gateway, certify};

/// A connection with this server name and protocol. It accepts any certificate.
pub fn connect(gateway: &Gateway, name: &str, protocol: &str) -> SslStream<TcpStream> {
    let stream = TcpStream::connect(&gateway.address).expect("a connection");
    tls_handshake(stream, name, protocol)
}

/// The handshake on an open connection.
pub fn tls_handshake(stream: TcpStream, name: &str, protocol: &str) -> SslStream<TcpStream> {
    tls_handshake_by(connector(protocol), stream, name)
}

/// A client of this protocol that accepts any certificate.
pub fn connector(protocol: &str) -> SslConnectorBuilder {
    let mut connector = SslConnector::builder(SslMethod::tls()).expect("a context");
    connector.set_verify(SslVerifyMode::NONE);
    let length = u8::try_from(protocol.len()).expect("a short name");
    let protocols = [&[length], protocol.as_bytes()].concat();
    connector.set_alpn_protos(&protocols).expect("a protocol");
    connector
}

/// The handshake of this client on an open connection.
pub fn tls_handshake_by(
    connector: SslConnectorBuilder,
    stream: TcpStream,
    name: &str,
) -> SslStream<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let config = connector.build().configure().expect("a configuration");
    let config = config.verify_hostname(false);
    config.connect(name, stream).expect("a handshake")
}

/// Sends bytes over HTTP/1.1, and reads until the connection ends.
pub fn say(gateway: &Gateway, name: &str, bytes: &[u8]) -> String {
    let mut stream = connect(gateway, name, "http/1.1");
    let mut said = Vec::new();
    // The gateway may close before it has read everything, which resets the connection.
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

/// The status of the answer to a GET over HTTP/2. 0: h2 itself has refused the head and reset the stream.
fn status_of(gateway: &Gateway, name: &str, fields: &[(&str, &str)]) -> u16 {
    let mut stream = connect(gateway, name, "h2");
    stream.write_all(h2::PREFACE).expect("a preface");
    h2::write(&mut stream, h2::SETTINGS, 0, h2::ALL, &[]).expect("settings");
    let mut head = [&[0x82, 0x87][..], &h2::field(4, "/")].concat();
    for (name, value) in fields {
        match *name {
            ":authority" => head.extend(h2::field(1, value)),
            name => head.extend([&h2::field(0, name)[..], &h2::field(0, value)[1..]].concat()),
        }
    }
    h2::write(&mut stream, h2::HEADERS, h2::WHOLE, 1, &head).expect("a request");
    loop {
        let (kind, _, payload) = h2::read(&mut stream).expect("a frame");
        // RFC 7541, appendix A and B.
        match (kind, payload.as_slice()) {
            (h2::HEADERS, [h2::OK, ..]) => return 200,
            (h2::HEADERS, [0x8c, ..]) => return 400,
            (h2::HEADERS, [0x48, 0x82, 0x68, 0x41, ..]) => return 421,
            (h2::RST_STREAM, _) => return 0,
            (h2::HEADERS, head) => panic!("an unexpected status: {head:x?}"),
            _ => {}
        }
    }
}

/// Two sites with the same back end. `b.test` requires client certificates. `more` are further names of the first site.
fn two_sites(more: &str) -> Gateway {
    let rig = Gateway::prepare();
    certify(&rig, "client", "ec", 30);
    let behind = format!("{BOTH}\nbackend = \"http://{}\"", backend(mirror));
    let guarded = "names = [\"b.test\"]\nclient_ca = \"client.pem\"";
    let sites =
        format!("[[site]]\nnames = [\"a.test\"{more}]\n{behind}\n[[site]]\n{guarded}\n{behind}");
    Gateway::start(rig, "", &sites)
}

fn get(lines: &str) -> Vec<u8> {
    format!("GET /private HTTP/1.1\r\n{lines}Connection: close\r\n\r\n").into()
}

#[test]
fn a_request_for_another_site_reaches_no_back_end() {
    for more in ["", ", \"*\""] {
        let gateway = two_sites(more);
        let other: [&[u8]; 11] = [
            b"Host: b.test",
            b"Host: b.test:\xff",
            b"Host: \xffb.test",
            b"Host: b.test:443:",
            b"Host: b.test:abc",
            b"Host: b.test:",
            b"Host: B.Test.",
            b"Host: x@b.test",
            b"Host: a.test\r\nHost: b.test",
            b"Host: a.test\r\nHost: a.test",
            b"Accept: */*",
        ];
        for field in other {
            let end = b"\r\nConnection: close\r\n\r\n";
            let request = [b"GET /private HTTP/1.1\r\n", field, end].concat();
            let said = say(&gateway, "a.test", &request);
            let field = String::from_utf8_lossy(field);
            assert!(said.starts_with("HTTP/1.1 400 "), "{field}: {said}");
            assert!(!said.contains("/private"), "{field}: {said}");
        }
        for request in [
            &b"GET http://b.test/private HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"[..],
            b"GET http://a.test/private HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n",
            b"GET /private HTTP/1.0\r\n\r\n",
        ] {
            let said = say(&gateway, "a.test", request);
            assert!(said.contains(" 400 "), "{said}");
        }
        for (fields, status) in [
            (&[("host", "b.test")][..], 400),
            (&[(":authority", "a.test"), ("host", "b.test")], 400),
            (&[(":authority", "b.test:443:"), ("host", "a.test")], 0),
            (&[(":authority", "b.test:abc")], 400),
            (&[("host", "a.test"), ("host", "a.test")], 400),
            (&[], 400),
            // Clients of HTTP/2 may use a connection for every name of its certificate (RFC 9113, section 9.1.1).
            (&[(":authority", "b.test")], 421),
            (&[(":authority", "a.test"), ("host", "A.test:443")], 200),
            (&[("host", "a.test")], 200),
        ] {
            assert_eq!(status_of(&gateway, "a.test", fields), status, "{fields:?}");
        }
    }
}

#[test]
fn a_back_end_has_the_canonical_host() {
    let gateway = two_sites(", \"*\"");
    for (host, canonical) in [
        ("A.Test", "a.test"),
        ("a.test.:443", "a.test"),
        ("a.test:8443", "a.test:8443"),
        ("[0::1]", "[::1]"),
        ("other.test", "other.test"),
    ] {
        let said = say(&gateway, "a.test", &get(&format!("Host: {host}\r\n")));
        assert!(said.contains(&format!("\nhost: {canonical}\r\n")), "{said}");
        let told = format!("\nx-forwarded-host: {canonical}\r\n");
        assert!(said.contains(&told), "{said}");
    }
}

/// Servers that pass fields on as variables write `_` for `-` as well.
#[test]
fn a_client_cannot_set_fields_of_the_gateway() {
    let gateway = two_sites("");
    let mut lines = "Host: a.test\r\nX-Mine: kept\r\nConnection: X-Forwarded-For\r\n".to_owned();
    for name in [
        "X_Forwarded_For",
        "X-Forwarded_For",
        "X.Forwarded.For",
        "X-Forwarded-For",
        "x-forwarded-user",
        "X-Forwarded-Client-Cert",
        "Forwarded",
        "X-Real-IP",
        "x_real_ip",
        "True-Client-IP",
        "True~Client~IP",
        "Client-Cert",
        "Client-Cert-Chain",
        "X-Client-Cert",
        "X-SSL-Client-Verify",
        "SSL_CLIENT_S_DN",
        "Any_Other",
    ] {
        lines += &[name, ": forged\r\n"].concat();
    }
    let said = say(&gateway, "a.test", &get(&lines));
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert!(!said.contains("forged"), "{said}");
    assert!(said.contains("x-mine: kept"), "{said}");
    assert!(said.contains("x-forwarded-for: 127.0.0.1"), "{said}");
}

/// A back end of HTTP/2 that reads everything and sends nothing but its settings.
fn silent_http2(mut stream: TcpStream) {
    let mut preface = [0; h2::PREFACE.len()];
    if stream.read_exact(&mut preface).is_err() {
        return;
    }
    let _ = h2::write(&mut stream, h2::SETTINGS, 0, h2::ALL, &[]);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Bodies in chunks, of which one is malformed.
const MALFORMED: [&str; 3] = [
    "5\r\nhello\r\nxyz\r\n",
    "zz\r\n",
    "5\r\nhelloworld\r\n0\r\n\r\n",
];

#[test]
fn a_malformed_chunk_gives_400() {
    // A back end that answered at once might be faster than the error.
    let reads = |mut stream: TcpStream| drop(stream.read_to_end(&mut Vec::new()));
    for (scheme, address) in [("http", backend(reads)), ("h2c", backend(silent_http2))] {
        let gateway = in_front_of(scheme, &address, "");
        let chunked =
            "POST /private HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in MALFORMED {
            let request = format!("{chunked}{body}");
            let said = say(&gateway, "a.test", request.as_bytes());
            assert!(
                said.starts_with("HTTP/1.1 400 "),
                "{scheme}, {body}: {said}"
            );
        }
        assert_eq!(gateway.metric("hsmux_gateway_backend_up"), 1);
    }
}

/// A request behind the chunk is not answered, because nobody knows where it begins.
#[test]
fn a_folder_answers_a_malformed_chunk_with_400_and_closes() {
    let gateway = Gateway::with_folder();
    for method in ["GET", "POST"] {
        let head = format!("{method} /page.txt HTTP/1.1\r\nHost: a.test\r\n");
        let ask = |body: &str| {
            let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{body}");
            let behind = "GET /page.txt HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
            say(&gateway, "a.test", format!("{chunked}{behind}").as_bytes())
        };
        let good = ask("5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(good.matches("HTTP/1.1 ").count(), 2, "{method}: {good}");
        for body in MALFORMED {
            let said = ask(body);
            let answers = said.matches("HTTP/1.1 ").count();
            let is_400 = said.starts_with("HTTP/1.1 400 ");
            assert!(is_400 && answers == 1, "{method}, {body}: {said}");
        }
    }
}
