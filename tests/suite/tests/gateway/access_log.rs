//! The access log: what its lines have of requests and tunnels.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use hsmux_suite::pki::{ALWAYS, Authority};
use hsmux_suite::{PATIENCE, until};
use serde_json::Value;

use crate::backends::{backend, head, mirror};
use crate::h2;
use crate::hosts::{connect, say, tls_handshake};
use crate::rig::{ASK, BOTH, FOLDER, Gateway};
use crate::websockets;

/// Lines of `[gateway]`.
pub const LOG: &str = "access_log = \"access.log\"";

/// The lines of the log, once there are so many.
pub fn lines(gateway: &Gateway, count: usize) -> Vec<String> {
    let path = gateway.rig.path("access.log");
    until(&format!("{count} lines"), PATIENCE, || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert!(lines.len() <= count, "{count} lines: {text}");
        (lines.len() == count).then_some(lines)
    })
}

/// The last line of so many.
fn last(gateway: &Gateway, count: usize) -> Value {
    let lines = lines(gateway, count);
    let line = lines.last().expect("a line");
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Asserts that a line has these fields; null: it lacks them.
fn has(line: &Value, fields: &[(&str, Value)]) {
    for (name, value) in fields {
        assert_eq!(&line[name], value, "{name}: {line}");
    }
}

/// A `[[site]]` of this name.
pub fn site(name: &str, backend: &str) -> String {
    format!("[[site]]\nnames = [\"{name}\"]\n{BOTH}\n{backend}\n")
}

/// Sends each byte back.
pub fn echo(mut stream: TcpStream) {
    let mut copy = stream.try_clone().expect("a copy");
    let _ = std::io::copy(&mut copy, &mut stream);
}

#[test]
fn answered_and_refused_requests_have_lines() {
    let address = backend(mirror);
    let sites = [
        site("a.test", &format!("backend = \"http://{address}\"")),
        site("files.wild.test", FOLDER),
    ];
    let gateway = Gateway::start(Gateway::prepare(), LOG, &sites.concat());
    let mut count = 0;
    let mut ask = |host: &str, path: &str, options: &str| {
        let answer = gateway.curl(host, path, options);
        count += 1;
        (answer, last(&gateway, count))
    };
    for (version, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let secret = "--header Authorization:secret --header Cookie:secret";
        let options = format!("{version} --data body {secret} --referer https://b.test/");
        let (answer, line) = ask("a.test", "/path?query=1", &options);
        answer.says(" 200").says("secret");
        has(
            &line,
            &[
                ("client", "127.0.0.1".into()),
                ("site", "a.test".into()),
                ("host", "a.test".into()),
                ("method", "POST".into()),
                ("path", "/path?query=1".into()),
                ("protocol", protocol.into()),
                ("status", 200.into()),
                ("received", 4.into()),
                ("backend", format!("http://{address}").into()),
                ("tls", "1.3".into()),
                ("resumed", false.into()),
                ("referer", "https://b.test/".into()),
                ("subject", Value::Null),
                ("aborted", Value::Null),
            ],
        );
        let (_, body) = answer.out.split_once("\r\n\r\n").expect("a body");
        has(&line, &[("sent", body.len().into())]);
        let millis = |name: &str| line[name].as_f64().expect("milliseconds");
        assert!(millis("backend_ms") > 0.0, "{line}");
        assert!(millis("ms") >= millis("backend_ms"), "{line}");
        let agent = line["user_agent"].as_str().expect("a program");
        assert!(agent.starts_with("curl/"), "{line}");
        assert!(!line.to_string().contains("secret"), "{line}");

        let (answer, line) = ask("files.wild.test", "/page.txt", version);
        answer.says(" 200");
        has(
            &line,
            &[
                ("status", 200.into()),
                ("sent", 7.into()),
                ("backend", Value::Null),
                ("aborted", Value::Null),
            ],
        );
        for (options, status, sent) in [("--head", 200, 0), ("--header Host:b.test", 400, 36)] {
            let options = format!("{version} {options}");
            let (_, line) = ask("files.wild.test", "/page.txt", &options);
            let expected = [("status", status.into()), ("aborted", Value::Null)];
            has(&line, &expected);
            has(&line, &[("sent", sent.into())]);
        }
        let (_, line) = ask("files.wild.test", "/none", version);
        has(&line, &[("status", 404.into())]);
    }
    let (_, line) = ask("a.test", "/", "--http2 --header Host:files.wild.test");
    has(
        &line,
        &[
            ("status", 421.into()),
            ("site", "a.test".into()),
            ("host", "files.wild.test".into()),
        ],
    );
}

/// hyper answers these itself.
#[test]
fn bytes_that_are_no_request_have_a_line() {
    let gateway = Gateway::start(Gateway::prepare(), LOG, &site("a.test", FOLDER));
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(200 << 10));
    for (count, (bytes, status)) in [("nonsense\r\n\r\n", 400), (&long, 431)].iter().enumerate() {
        let said = say(&gateway, "a.test", bytes.as_bytes());
        assert!(said.contains(&status.to_string()), "{said}");
        let line = last(&gateway, count + 1);
        let expected = [("status", (*status).into()), ("method", Value::Null)];
        has(&line, &expected);
    }
}

#[test]
fn requests_that_were_not_answered_to_their_end_are_aborted() {
    let (tell, told) = mpsc::channel();
    let address = backend(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
        let asked = head(&mut reader);
        if asked.starts_with("get /cut ") {
            let part = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
            return stream.write_all(part).expect("the gateway");
        }
        tell.send(()).expect("the test");
        // Until the gateway leaves.
        let _ = reader.read(&mut [0]);
    });
    let site = site("*", &format!("backend = \"http://{address}\""));
    let gateway = Gateway::start(Gateway::prepare(), LOG, &site);
    let mut client = connect(&gateway, "a.test", "http/1.1");
    let request = b"GET /left HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.write_all(request).expect("a request");
    told.recv_timeout(PATIENCE).expect("a request");
    drop(client);
    let mut expected = vec![
        ("path", "/left".into()),
        ("protocol", "HTTP/1.1".into()),
        ("status", 499.into()),
        ("sent", 0.into()),
        ("aborted", true.into()),
    ];
    has(&last(&gateway, 1), &expected);
    let mut client = h2::Client::open(&gateway.address);
    client.ask("a.test", "/left");
    told.recv_timeout(PATIENCE).expect("a request");
    drop(client);
    expected[1].1 = "HTTP/2.0".into();
    has(&last(&gateway, 2), &expected);
    for (count, version) in [(3, "--http1.1"), (4, "--http2")] {
        gateway.curl("a.test", "/cut", version).says(" 200");
        let expected = [
            ("path", "/cut".into()),
            ("status", 200.into()),
            ("sent", 3.into()),
            ("aborted", true.into()),
        ];
        has(&last(&gateway, count), &expected);
    }
}

#[test]
fn a_tunnel_has_a_line_at_its_end() {
    let sites = [
        site(
            "t.wild.test",
            &format!("backend = \"tcp://{}\"", backend(echo)),
        ),
        site("none.wild.test", "backend = \"tcp://127.0.0.1:1\""),
        site(
            "a.test",
            &format!(
                "backend = \"http://{}\"",
                backend(|stream| websockets::websocket(stream, websockets::twice))
            ),
        ),
    ];
    let gateway = Gateway::start(Gateway::prepare(), LOG, &sites.concat());
    let mut client = connect(&gateway, "t.wild.test", "any");
    client.write_all(b"hello").expect("bytes");
    client.read_exact(&mut [0; 5]).expect("an echo");
    assert!(!gateway.rig.path("access.log").exists());
    drop(client);
    let line = last(&gateway, 1);
    has(
        &line,
        &[
            ("site", "t.wild.test".into()),
            ("method", Value::Null),
            ("status", 200.into()),
            ("sent", 5.into()),
            ("received", 5.into()),
            ("aborted", Value::Null),
        ],
    );
    let backend = line["backend"].as_str().expect("a back end");
    assert!(backend.starts_with("tcp://127.0.0.1:"), "{line}");
    let mut refused = connect(&gateway, "none.wild.test", "any");
    let _ = refused.read_to_end(&mut Vec::new());
    let expected = [("status", 502.into()), ("aborted", true.into())];
    has(&last(&gateway, 2), &expected);

    let said = gateway.s_client("-quiet -alpn http/1.1 -servername a.test", websockets::ASK);
    assert!(said.contains("hellohello"), "{said}");
    let mut expected = vec![
        ("method", "GET".into()),
        ("path", "/chat".into()),
        ("protocol", "HTTP/1.1".into()),
        ("status", 101.into()),
        ("sent", 10.into()),
        ("received", 5.into()),
        ("aborted", Value::Null),
    ];
    has(&last(&gateway, 3), &expected);
    let mut stream = connect(&gateway, "a.test", "h2");
    open_websocket(&mut stream);
    drop(stream);
    expected[0].1 = "CONNECT".into();
    expected[2].1 = "HTTP/2.0".into();
    expected[3].1 = 200.into();
    has(&last(&gateway, 4), &expected);
}

/// Opens a WebSocket on a stream of HTTP/2, sends a word, and reads until the stream ends.
fn open_websocket(stream: &mut (impl Read + Write)) {
    stream.write_all(h2::PREFACE).expect("a preface");
    h2::write(stream, h2::SETTINGS, 0, h2::ALL, &[]).expect("settings");
    let mut head = [
        &*h2::field(2, "CONNECT"),
        &[0x87],
        &*h2::field(1, "a.test"),
        &*h2::field(4, "/chat"),
    ]
    .concat();
    for (name, value) in [(":protocol", "websocket"), ("sec-websocket-version", "13")] {
        head.extend([&*h2::field(0, name), &h2::field(0, value)[1..]].concat());
    }
    h2::write(stream, h2::HEADERS, h2::WHOLE & !h2::END, 1, &head).expect("a request");
    loop {
        let (kind, flags, payload) = h2::read(stream).expect("a frame");
        match kind {
            h2::HEADERS => {
                assert_eq!(payload[0], websockets::AGREED);
                h2::write(stream, h2::DATA, 0, 1, b"hello").expect("a word");
            }
            h2::DATA if flags & h2::END != 0 => return,
            _ => {}
        }
    }
}

#[test]
fn a_client_forges_no_line() {
    let gateway = Gateway::start(Gateway::prepare(), LOG, &site("a.test", FOLDER));
    let hostile = b"x\"}\t{\"status\":200\\ \x85\xff\xe2\x80\xae";
    let long = vec![b'y'; 4000];
    for (count, agent) in [&hostile[..], &long].into_iter().enumerate() {
        let request = [
            b"GET /%0a\"{x} HTTP/1.1\r\nHost: a.test\r\nReferer: ",
            agent,
            b"\r\nUser-Agent: ",
            agent,
            b"\r\nConnection: close\r\n\r\n",
        ];
        say(&gateway, "a.test", &request.concat());
        let line = last(&gateway, count + 1);
        has(&line, &[("path", "/%0a\"{x}".into())]);
        assert_eq!(line["status"], 404, "{line}");
        let field = line["user_agent"].as_str().expect("a text").to_owned();
        has(&line, &[("referer", field.clone().into())]);
        if count == 0 {
            assert_eq!(field, String::from_utf8_lossy(hostile), "{line}");
        } else {
            assert_eq!(field, format!("{}...", "y".repeat(512)));
        }
    }
    let text = fs::read(gateway.rig.path("access.log")).expect("a log");
    let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n');
    assert!(text.iter().all(plain), "{text:?}");
}

#[test]
fn a_line_has_the_clients_certificate_and_address() {
    let rig = Gateway::prepare();
    let clients = Authority::new(&rig, "clients");
    clients.issue_to(&rig, "one", "/CN=a,b", "DNS:client.example", ALWAYS);
    let lines = format!("{LOG}\nproxy_protocol = true");
    let sites = [
        site("a.test", &format!("client_ca = \"clients.pem\"\n{FOLDER}")),
        site("b.wild.test", FOLDER),
    ];
    let gateway = Gateway::start(rig, &lines, &sites.concat());
    let open = |name: &str| {
        let mut stream = TcpStream::connect(&gateway.address).expect("a connection");
        let header = b"PROXY TCP4 192.0.2.7 192.0.2.1 50412 443\r\n";
        stream.write_all(header).expect("a header");
        tls_handshake(stream, name, "http/1.1")
    };
    let mut stream = open("b.wild.test");
    let request = ASK.replace("a.test", "b.wild.test");
    stream.write_all(request.as_bytes()).expect("a request");
    let _ = stream.read_to_end(&mut Vec::new());
    let address = [("client", "192.0.2.7".into()), ("port", 50412.into())];
    has(&last(&gateway, 1), &address);
    let file = |end: &str| gateway.rig.path(&format!("one.{end}"));
    let options = format!(
        "--haproxy-protocol --cert {} --key {}",
        file("pem").display(),
        file("key").display()
    );
    gateway.curl("a.test", "/page.txt", &options).says(" 200");
    has(&last(&gateway, 2), &[("subject", "CN=a\\,b".into())]);
}

#[test]
fn a_line_says_whether_the_session_was_resumed() {
    let gateway = Gateway::start(Gateway::prepare(), LOG, &site("*", FOLDER));
    for (count, (version, name)) in [("-tls1_3", "1.3"), ("-tls1_2", "1.2")].iter().enumerate() {
        gateway.s_client(&format!("{version} -sess_out session"), ASK);
        let expected = [("tls", (*name).into()), ("resumed", false.into())];
        has(&last(&gateway, 2 * count + 1), &expected);
        gateway.s_client(&format!("{version} -sess_in session"), ASK);
        has(&last(&gateway, 2 * count + 2), &[("resumed", true.into())]);
    }
}
