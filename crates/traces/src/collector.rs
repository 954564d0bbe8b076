//! Export of spans: OTLP over HTTP (OpenTelemetry protocol 1.9, "OTLP/HTTP"), protobuf.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hsmux_edge::HttpEndpoint;
use hsmux_token::{Error, Kind, Result};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, Protocol, SpanExporter,
    WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::time::timeout;

/// A collector of spans.
pub struct Collector {
    remote: HttpEndpoint,
    /// It does not take spans, and that was said.
    away: AtomicBool,
}

/// How long it may take to answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer says how many spans were refused, and why.
const LONGEST_ANSWER: usize = 64 << 10;

impl Collector {
    /// The one of the configuration, or else of the environment.
    pub fn find(section: Option<&hsmux_config::Traces>) -> Result<Option<Self>> {
        let below = |base: &str| format!("{}/v1/traces", base.trim_end_matches('/'));
        let url = match section {
            Some(section) => Some(below(&section.endpoint)),
            None => said(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
                .or_else(|| Some(below(&said(OTEL_EXPORTER_OTLP_ENDPOINT)?))),
        };
        let disabled =
            said("OTEL_SDK_DISABLED").is_some_and(|said| said.eq_ignore_ascii_case("true"));
        let Some(url) = url.filter(|_| !disabled) else {
            return Ok(None);
        };
        if url.contains('@') {
            // A user name in the URL would appear in the log.
            let why = "there is a user in it; use OTEL_EXPORTER_OTLP_HEADERS";
            return Err(failed("the endpoint", &why));
        }
        let own = section.and_then(|section| section.ca.clone());
        let roots = own.or_else(|| said("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from));
        let remote = HttpEndpoint::new(&url, roots.as_deref());
        Ok(Some(Self {
            remote: remote.map_err(|e| failed("the collector", &e))?,
            away: AtomicBool::new(false),
        }))
    }

    /// The address of the collector.
    pub fn url(&self) -> impl fmt::Display + use<> {
        self.remote.url().clone()
    }

    /// The exporter to it.
    pub fn exporter(self, of: &Resource) -> Result<SpanExporter> {
        let url = self.remote.url().to_string();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&url)
            .with_http_client(self)
            .build()
            .map_err(|e| failed(&url, &e))?;
        exporter.set_resource(of);
        Ok(exporter)
    }

    /// Says once that it is away, and once that it is back.
    fn note(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let why = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_away = self.away.swap(why.is_some(), Ordering::Relaxed);
        match why {
            Some(why) if !was_away => {
                tracing::warn!(collector = %self.remote.url(), why, "spans are not taken: those that do not fit in are lost");
            }
            None if was_away => {
                tracing::info!(collector = %self.remote.url(), "spans are taken again");
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let asked = timeout(EXPORT_TIMEOUT, self.remote.ask(request, LONGEST_ANSWER)).await;
        let answer =
            asked.unwrap_or_else(|_| Err(format!("no answer within {EXPORT_TIMEOUT:?}").into()));
        self.note(&answer);
        answer
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collector").field(self.remote.url()).finish()
    }
}

/// The resource of all spans; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` add to it or replace it.
pub fn resource() -> Resource {
    let resource = Resource::builder_empty()
        .with_service_name("hsmux")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match said("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// The value of an environment variable; an empty one counts as unset (OpenTelemetry specification, "Environment
/// Variable Specification").
fn said(name: &str) -> Option<String> {
    env::var(name).ok().filter(|said| !said.is_empty())
}

fn failed(what: impl fmt::Display, why: &dyn fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("traces: {what}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use tokio::runtime::Builder;

    use super::*;

    /// The answer of a collector to a request without a body.
    fn ask(listener: &TcpListener) -> Result<Response<Bytes>, HttpError> {
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let collector = Collector {
            remote: HttpEndpoint::new(&url, None).unwrap(),
            away: AtomicBool::new(false),
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let asked = collector.send_bytes(Request::new(Bytes::new()));
        runtime.unwrap().block_on(asked)
    }

    #[test]
    fn an_answer_has_64_kib() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lengths = [64 << 10, (64 << 10) + 1];
        let far = listener.try_clone().unwrap();
        let server = thread::spawn(move || {
            for length in lengths {
                let mut stream = far.accept().unwrap().0;
                let mut lines = BufReader::new(&stream).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}",
                    "a".repeat(length)
                );
                // A client that does not take all of it may have gone.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let answers = lengths.map(|_| ask(&listener).ok());
        server.join().unwrap();
        let taken = answers.map(|answer| answer.map(|answer| answer.body().len()));
        assert_eq!(taken, [Some(65_536), None]);
    }

    #[test]
    fn a_collector_that_does_not_answer_is_given_up_after_ten_seconds() {
        // Linux completes connections in its queue.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let begun = Instant::now();
        let error = ask(&silent).unwrap_err().to_string();
        assert!(error.contains("no answer within 10s"), "{error}");
        let waited = begun.elapsed();
        assert!((10..60).contains(&waited.as_secs()), "{waited:?}");
    }
}
