//! A collector of spans, as OTLP over HTTP has it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use hsmux_suite::{PATIENCE, hex, until};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A collector that takes all that comes.
pub struct Collector {
    /// Its base URL.
    pub url: String,
    seen: Arc<Mutex<Seen>>,
}

/// What has come.
#[derive(Default)]
struct Seen {
    requests: Vec<Received>,
    spans: Vec<Span>,
    services: Vec<String>,
}

/// A request as it came.
struct Received {
    head: String,
    body: Vec<u8>,
}

impl Collector {
    /// On a port that the system has chosen.
    pub fn start() -> Self {
        Self::serve("http", |stream| Box::new(stream))
    }

    /// The same with HTTPS, by a certificate and its key.
    pub fn start_with(certificate: &Path, key: &Path) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(key).expect("its key");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a pair");
        let config = Arc::new(config);
        Self::serve("https", move |stream| {
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
            Box::new(StreamOwned::new(tls, stream))
        })
    }

    fn serve<Made>(scheme: &str, open: Made) -> Self
    where
        Made: Fn(std::net::TcpStream) -> Box<dyn Stream> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let taken = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that breaks off is its own affair.
                let Some(received) = answer(open(stream)) else {
                    continue;
                };
                lock(&taken).take(received);
            }
        });
        Self {
            url: format!("{scheme}://{address}"),
            seen,
        }
    }

    /// Spans of a trace, once there is the one of the request itself, which is the last.
    pub fn trace(&self, id: &str) -> Vec<Span> {
        until("the spans arrive", PATIENCE, || {
            let spans = self.spans_of(id);
            spans
                .iter()
                .any(|span| span.kind == SERVER)
                .then_some(spans)
        })
    }

    /// The same, once there are so many: the daemon sends those of operations, later than the broker or sooner.
    pub fn whole_trace(&self, id: &str, count: usize) -> Vec<Span> {
        until("all spans arrive", PATIENCE, || {
            let spans = self.trace(id);
            (spans.len() >= count).then_some(spans)
        })
    }

    /// Those that have come until now.
    pub fn spans_of(&self, id: &str) -> Vec<Span> {
        let mut spans = lock(&self.seen).spans.clone();
        spans.retain(|span| hex(&span.trace_id) == id);
        spans
    }

    /// The traces of requests that have come. Of others there are spans of operations alone.
    pub fn requests(&self) -> Vec<String> {
        let mut ids = self.traces();
        ids.retain(|id| self.spans_of(id).iter().any(|span| span.kind == SERVER));
        ids
    }

    /// The traces of all that has come.
    pub fn traces(&self) -> Vec<String> {
        let mut ids: Vec<_> = lock(&self.seen)
            .spans
            .iter()
            .map(|span| hex(&span.trace_id))
            .collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Names of those who have sent.
    pub fn services(&self) -> Vec<String> {
        lock(&self.seen).services.clone()
    }

    /// Heads of all requests.
    pub fn heads(&self) -> Vec<String> {
        let seen = lock(&self.seen);
        seen.requests
            .iter()
            .map(|request| request.head.clone())
            .collect()
    }

    /// Whether these bytes came, in any request.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        let seen = lock(&self.seen);
        let mut bodies = seen.requests.iter().map(|request| &request.body);
        bodies.any(|body| body.windows(bytes.len()).any(|found| found == bytes))
    }
}

impl Seen {
    fn take(&mut self, received: Received) {
        let request = ExportTraceServiceRequest::decode(&*received.body).expect("spans");
        for of in request.resource_spans {
            let resource = of.resource.expect("who sends");
            self.services
                .extend(text(&resource.attributes, "service.name"));
            self.spans
                .extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        self.requests.push(received);
    }
}

/// `SPAN_KIND_SERVER`
pub const SERVER: i32 = 2;

/// An attribute, as text.
pub fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One request, which is answered with an empty `ExportTraceServiceResponse`.
fn answer(mut stream: Box<dyn Stream>) -> Option<Received> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?.to_lowercase();
    let (_, length) = head.split_once("content-length: ")?;
    let length = length.lines().next()?.trim().parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()?;
    Some(Received { head, body })
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
