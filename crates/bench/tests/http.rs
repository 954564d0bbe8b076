//! Load on a service with the Transit API in this process.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use common::{certificate, fits_80_columns, keeps_schema, quiet, tls_server};
use hsmux_bench::http::{self, HttpOptions};
use hsmux_bench::{LoadModel, Until};
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// Answers a path and a body with a status and a body.
type Answer = fn(usize, &str, &Value) -> (u16, Value);

/// A server with a thread for each connection; it ends with the test's process.
struct Server {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        Self::on("http", |stream| stream, answer)
    }

    /// `way` wraps a connection, for example in TLS.
    fn on<S: Read + Write>(
        scheme: &str,
        way: impl Fn(TcpStream) -> S + Send + Sync + 'static,
        answer: Answer,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let way = Arc::new(way);
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, asked) = (Arc::clone(&connections), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Relaxed);
                let (asked, way) = (Arc::clone(&asked), Arc::clone(&way));
                std::thread::spawn(move || serve(way(stream.unwrap()), &asked, answer));
            }
        });
        Self { url, connections }
    }

    /// Options for this number of requests by four clients.
    fn ask(&self, count: u64) -> HttpOptions {
        HttpOptions {
            load: LoadModel::Closed { workers: 4 },
            until: Until::Count(count),
            warm_up: Duration::ZERO,
            ..HttpOptions::new(&self.url, "orders")
        }
    }
}

/// Serves until the client closes the connection, or announces the last request.
fn serve(stream: impl Read + Write, asked: &AtomicUsize, answer: Answer) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let lower = head.to_lowercase();
        let length = lower.split("content-length: ").nth(1);
        let length = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let path = head.split(' ').nth(1)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (status, body) = answer(asked.fetch_add(1, Relaxed), path, &body);
        let body = body.to_string();
        let length = body.len();
        let text = format!("HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\n\r\n{body}");
        reader.get_mut().write_all(text.as_bytes()).ok()?;
        reader.get_mut().flush().ok()?;
        if lower.contains("connection: close") {
            return None;
        }
    }
}

/// "Encrypts" by returning the input.
fn transit(_: usize, path: &str, body: &Value) -> (u16, Value) {
    let one = |item: &Value| match path {
        "/v1/transit/encrypt/orders" => {
            json!({ "ciphertext": format!("vault:v1:{}", item["plaintext"].as_str().unwrap()) })
        }
        "/v1/transit/decrypt/orders" => {
            let text = item["ciphertext"].as_str().unwrap();
            json!({ "plaintext": text.strip_prefix("vault:v1:").unwrap() })
        }
        other => panic!("{other}"),
    };
    let data = match body["batch_input"].as_array() {
        Some(items) => json!({ "batch_results": items.iter().map(one).collect::<Vec<_>>() }),
        None => one(body),
    };
    (200, json!({ "data": data }))
}

#[test]
fn requests_are_counted_on_connections_that_are_kept() {
    let server = Server::start(transit);
    let report = http::run(&server.ask(400), quiet()).unwrap();
    let found = &report.measurement;
    assert_eq!((found.ops, found.failed), (400, 0), "{:?}", found.faults);
    // One more connection has prepared the ciphertexts.
    assert_eq!(server.connections.load(Relaxed), 5);
    let json = keeps_schema(&report);
    let back: http::HttpReport = serde_json::from_value(json).unwrap();
    assert_eq!((back.mix.as_str(), back.batch), ("encrypt=1,decrypt=1", 1));
    let text = report.to_string();
    for part in ["4 clients", "p99.9", "failed      0", "256 bytes"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fits_80_columns(&text);
    assert!(report.html().contains("<svg"));
}

#[test]
fn a_connection_for_each_request_is_one() {
    let server = Server::start(transit);
    let mut options = server.ask(40);
    options.keep_alive = false;
    let report = http::run(&options, quiet()).unwrap();
    assert_eq!(report.measurement.ops, 40);
    assert!(server.connections.load(Relaxed) >= 40);
}

#[test]
fn https_is_trusted_by_its_root_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (pem, config) = tls_server(folder.path());
    let tls = move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        StreamOwned::new(connection, stream)
    };
    let server = Server::on("https", tls, transit);
    let mut options = server.ask(40);
    let error = http::run(&options, quiet()).unwrap_err().to_string();
    assert!(error.contains("--ca"), "{error}");
    options.ca = Some(pem);
    let report = http::run(&options, quiet()).unwrap();
    assert_eq!((report.measurement.ops, report.measurement.failed), (40, 0));
    let other = tempfile::tempdir().unwrap();
    options.ca = Some(certificate(other.path()).0);
    let error = http::run(&options, quiet()).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn items_of_a_batch_are_counted_each() {
    let server = Server::start(transit);
    let mut options = server.ask(20);
    options.batch = 7;
    let report = http::run(&options, quiet()).unwrap();
    let found = &report.measurement;
    assert_eq!((found.ops, found.failed), (20, 0), "{:?}", found.faults);
    let ratio = report.items_per_second / found.per_second;
    assert!((ratio - 7.0).abs() < 1e-6, "{ratio}");
}

/// The service answers ten requests, and then fails.
fn sealed_later(number: usize, path: &str, body: &Value) -> (u16, Value) {
    match number {
        0..20 => transit(number, path, body),
        _ if path.contains("decrypt") => (503, json!({ "errors": ["sealed"] })),
        _ => (403, json!({ "errors": ["permission denied"] })),
    }
}

#[test]
fn errors_are_counted_by_their_status() {
    let server = Server::start(sealed_later);
    let report = http::run(&server.ask(100), quiet()).unwrap();
    let found = &report.measurement;
    assert_eq!(found.ops + found.failed, 100);
    let of = |status: &str| {
        let faults = found
            .faults
            .iter()
            .filter(|f| f.message.starts_with(status));
        faults.map(|fault| fault.count).sum::<u64>()
    };
    assert!(of("503") > 30 && of("403") > 30, "{:?}", found.faults);
    assert_eq!(of("503") + of("403"), found.failed);
    assert!(report.to_string().contains("sealed"));
    keeps_schema(&report);
}

/// Decrypts to another client's text.
fn mixed_up(number: usize, path: &str, body: &Value) -> (u16, Value) {
    match number {
        0..20 => transit(number, path, body),
        _ => transit(
            number,
            path,
            &json!({ "ciphertext": "vault:v1:b3RoZXI=", "plaintext": "b3RoZXI=" }),
        ),
    }
}

#[test]
fn another_clients_plaintext_is_a_wrong_answer() {
    let server = Server::start(mixed_up);
    let report = http::run(&server.ask(100), quiet()).unwrap();
    let found = &report.measurement;
    assert!(found.failed >= 30, "{found:?}");
    assert!(
        found.faults[0].message.starts_with("wrong answer"),
        "{:?}",
        found.faults
    );
}

#[test]
fn what_cannot_be_measured_says_why() {
    let refused = |_: usize, _: &str, _: &Value| (403, json!({ "errors": ["permission denied"] }));
    let server = Server::start(refused);
    let error = http::run(&server.ask(10), quiet()).unwrap_err().to_string();
    assert!(
        error.contains("403") && error.contains("permission denied"),
        "{error}"
    );
    let nobody = HttpOptions::new("unix:/nowhere/broker.sock", "orders");
    let error = http::run(&nobody, quiet()).unwrap_err().to_string();
    assert!(error.contains("not connected"), "{error}");
    let mut none = server.ask(10);
    none.load = LoadModel::Closed { workers: 0 };
    let error = http::run(&none, quiet()).unwrap_err().to_string();
    assert!(error.contains("at least 1"), "{error}");
}

#[test]
fn an_open_loop_starts_as_many_as_it_intends() {
    let server = Server::start(transit);
    let mut options = server.ask(0);
    options.load = LoadModel::Open {
        per_second: 200.0,
        workers: 4,
    };
    options.until = Until::Elapsed(Duration::from_millis(500));
    let report = http::run(&options, quiet()).unwrap();
    let found = &report.measurement;
    assert_eq!(found.intended_per_second, Some(200.0));
    assert!((1..=100).contains(&found.ops), "{}", found.ops);
    assert!(found.elapsed_s >= 0.5, "{}", found.elapsed_s);
}
