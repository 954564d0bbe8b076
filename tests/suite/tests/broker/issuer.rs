//! The keys of JWTs on their issuer's server: fetched, fetched again, and kept while it is away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::jwt::{KINDS, claims, status};
use crate::rig::Broker;
use hsmux_suite::pki::{ALWAYS, Authority};

/// A server that answers every request alike.
struct Server {
    address: SocketAddr,
    secure: bool,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Mutex<Answer>,
    asked: Mutex<usize>,
    over: AtomicBool,
}

#[derive(Clone)]
enum Answer {
    /// A head and a body.
    Text(String),
    /// None: the connection ends.
    HangUp,
    /// None, and the connection stays.
    Silence,
}

fn ok(body: &str) -> Answer {
    let length = body.len();
    Answer::Text(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

fn key_set(keys: &[&Value]) -> Answer {
    ok(&json!({ "keys": keys }).to_string())
}

impl Server {
    /// `FILE.pem` and `FILE.key` of the rig are its certificate; without them it is in clear.
    fn start(rig: &Rig, file: Option<&str>, answer: Answer) -> Self {
        let tls = file.map(|file| {
            let path = |end: &str| rig.path(&format!("{file}.{end}"));
            let own = CertificateDer::from_pem_file(path("pem")).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(path("key")).expect("its key");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions of TLS")
                .with_no_client_auth()
                .with_single_cert(vec![own], key);
            Arc::new(config.expect("a pair"))
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let shared = Arc::new(Shared {
            answer: Mutex::new(answer),
            asked: Mutex::new(0),
            over: AtomicBool::new(false),
        });
        let (address, secure) = (listener.local_addr().expect("a port"), tls.is_some());
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serving.serve(&listener, tls.as_ref()));
        Self {
            address,
            secure,
            shared,
            thread: Some(thread),
        }
    }

    fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}/keys?of=broker", self.address)
    }

    fn answers(&self, answer: Answer) {
        *self.shared.answer.lock().expect("an answer") = answer;
    }

    /// How often somebody has asked.
    fn asked(&self) -> usize {
        *self.shared.asked.lock().expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, listener: &TcpListener, tls: Option<&Arc<ServerConfig>>) {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            *self.asked.lock().expect("a number") += 1;
            let answer = self.answer.lock().expect("an answer").clone();
            match answer {
                Answer::HangUp => {}
                Answer::Silence => silent.push(stream),
                // Whether it was heard is the other end's to say.
                Answer::Text(text) => drop(speak(stream, tls, &text)),
            }
        }
    }
}

fn speak(stream: TcpStream, tls: Option<&Arc<ServerConfig>>, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    match tls {
        None => exchange(stream, text),
        Some(tls) => {
            let tls = ServerConnection::new(Arc::clone(tls)).map_err(std::io::Error::other)?;
            exchange(StreamOwned::new(tls, stream), text)
        }
    }
}

fn exchange(mut stream: impl Read + Write, text: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    assert!(head.starts_with(b"GET /keys?of=broker HTTP/1.1\r\n"));
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

/// A broker with its keys from there.
fn broker(rig: Rig, server: &Server, more: &str) -> Broker {
    let url = server.url();
    let section = format!(
        r#"
[broker]
listen = ["127.0.0.1:0"]
jwt_keys = {{ url = "{url}"{more} }}
jwt_issuer = "https://login.example"
jwt_audience = "hsmux"

[[policy]]
clients = ["jwt:alice", "token:app"]
keys = ["app-*"]
allow = ["*", "metrics"]
"#
    );
    Broker::of(rig, &section)
}

fn until_status(broker: &Broker, token: &str, wanted: u16) {
    until(&format!("the status {wanted}"), PATIENCE, || {
        (status(broker, token) == wanted).then_some(())
    });
}

fn until_said(broker: &Broker, words: &str) {
    until(&format!("the log says {words}"), PATIENCE, || {
        let log = broker.rig.daemon.as_ref().expect("a daemon").log();
        log.contains(words).then_some(())
    });
}

#[test]
fn a_key_that_is_not_known_is_asked_for_and_nobody_can_ask_too_often() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let authority = Authority::new(&rig, "authority");
    authority.issue(&rig, "issuer", "IP:127.0.0.1", ALWAYS);
    let kind = &KINDS[2];
    let [old, new] = ["old", "new"].map(|name| kind.make(&rig, name));
    let [by_old, by_new] = ["old", "new"].map(|name| kind.token(&rig, name, &claims()));
    let server = Server::start(&rig, Some("issuer"), key_set(&[&old]));
    let broker = broker(rig, &server, ", ca = \"authority.pem\"");
    assert_eq!(status(&broker, &by_old), 404);
    server.answers(key_set(&[&new]));
    until_status(&broker, &by_new, 404);
    assert_eq!(status(&broker, &by_old), 403, "its key has left the set");

    let (before, since) = (server.asked(), Instant::now());
    let (head, rest) = by_new.split_once('.').expect("three parts");
    assert!(!head.is_empty());
    for name in 0..30 {
        let head = json!({ "alg": kind.algorithm, "kid": format!("made up {name}") });
        let head = crate::jwt::base64(head.to_string().as_bytes());
        assert_eq!(status(&broker, &format!("{head}.{rest}")), 403);
    }
    let asked = (server.asked() - before) as u64;
    assert!(asked <= 1 + since.elapsed().as_secs() / 5, "{asked}");
    assert_eq!(status(&broker, &by_new), 404);
}

#[test]
fn what_a_server_says_that_makes_no_sense_changes_nothing() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let kind = &KINDS[2];
    let (key, other) = (kind.make(&rig, "key"), kind.make(&rig, "other"));
    let token = kind.token(&rig, "key", &claims());
    let server = Server::start(&rig, None, key_set(&[&key]));
    let elsewhere = Server::start(&rig, None, key_set(&[&other]));
    let broker = broker(rig, &server, ", refresh = \"1s\"");
    let moved = format!(
        "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        elsewhere.url()
    );
    let long = json!({ "keys": [&other], "more": " ".repeat(300_000) }).to_string();
    for (answer, words) in [
        (Answer::HangUp, "keys of the JWTs' issuer are as they were"),
        (Answer::Text(moved), "it answers 302"),
        (ok(&long), "length limit exceeded"),
        (ok("{"), "EOF while parsing"),
        (ok(r#"{"keys": []}"#), "no public key in it"),
    ] {
        server.answers(answer);
        until_said(&broker, words);
        assert_eq!(status(&broker, &token), 404, "{words}");
    }
    assert_eq!(elsewhere.asked(), 0);
    until_said(&broker, "s old, and hold until they are 1day old");

    // A client that asks meanwhile does not wait for the silent server.
    server.answers(Answer::Silence);
    let head = json!({ "alg": kind.algorithm, "kid": "other" });
    let (_, rest) = token.split_once('.').expect("three parts");
    let head = crate::jwt::base64(head.to_string().as_bytes());
    assert_eq!(status(&broker, &format!("{head}.{rest}")), 403);
    assert_eq!(status(&broker, &token), 404);
    let mut connection = Connection::tcp(&broker.url);
    let page = connection.ask("GET", "/metrics", &broker.token, "");
    let page = page.expect("a page").body;
    assert!(
        page.contains("\nhsmux_broker_jwt_keys_age_seconds "),
        "{page}"
    );
}

#[test]
fn keys_that_are_too_old_let_nobody_in() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let authority = Authority::new(&rig, "authority");
    authority.issue(&rig, "issuer", "IP:127.0.0.1", ALWAYS);
    let kind = &KINDS[2];
    let key = kind.make(&rig, "key");
    let token = kind.token(&rig, "key", &claims());
    // It is away when the broker starts.
    let server = Server::start(&rig, Some("issuer"), Answer::HangUp);
    let more = ", ca = \"authority.pem\", refresh = \"1s\", max_age = \"2s\"";
    let broker = broker(rig, &server, more);
    let later = |broker: &Broker| {
        let mut connection = Connection::tcp(&broker.url);
        let answer = connection.ask("GET", "/v1/transit/keys/app-none", &token, "");
        let answer = answer.expect("an answer");
        (answer.status == 503).then(|| answer.retry_after().expect("when to come back"))
    };
    assert!(later(&broker).is_some());
    assert_eq!(status(&broker, &broker.token), 404, "others are let in");
    for _ in 0..2 {
        server.answers(key_set(&[&key]));
        until_status(&broker, &token, 404);
        server.answers(Answer::HangUp);
        until("they are too old", PATIENCE, || later(&broker));
        until_said(&broker, "which is too old: JWTs are refused");
    }
}

/// Whose certificate leads nowhere is not the issuer.
#[test]
fn nobody_else_has_keys_to_give() {
    let rig = Rig::empty(Setup::Daemon, 1);
    Authority::new(&rig, "authority");
    let other = Authority::new(&rig, "other");
    other.issue(&rig, "forged", "IP:127.0.0.1", ALWAYS);
    let kind = &KINDS[2];
    let key = kind.make(&rig, "key");
    let token = kind.token(&rig, "key", &claims());
    let server = Server::start(&rig, Some("forged"), key_set(&[&key]));
    let broker = broker(rig, &server, ", ca = \"authority.pem\"");
    until_said(&broker, "there are none yet, and JWTs are refused");
    until_said(&broker, "invalid peer certificate");
    let patience = Instant::now() + Duration::from_secs(2);
    while Instant::now() < patience {
        assert_eq!(status(&broker, &token), 503);
    }
}
