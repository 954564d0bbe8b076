//! What is sent to whom: OTLP over HTTP (OpenTelemetry protocol 1.9, "OTLP/HTTP"), protobuf.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::HOST;
use axum::http::{HeaderValue, Request, Response, Uri};
use bytes::Bytes;
use hsmux_pool::config;
use hsmux_token::{Error, Kind, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, Protocol, SpanExporter,
    WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A collector of spans.
pub struct Collector {
    url: Uri,
    tls: Option<TlsConnector>,
    /// It does not take spans, and that was said.
    away: AtomicBool,
}

/// The system's roots, where Debian has them.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer says how many spans were refused, and why.
const LONGEST_ANSWER: usize = 64 << 10;

impl Collector {
    /// The one of the configuration, or else of the environment.
    pub fn find(section: Option<&config::Traces>) -> Result<Option<Self>> {
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
            // It would stand in the log.
            let why = "there is a user in it; use OTEL_EXPORTER_OTLP_HEADERS";
            return Err(failed("the endpoint", &why));
        }
        let url: Uri = url.parse().map_err(|e| failed(&url, &e))?;
        let tls = match url.scheme_str() {
            _ if url.host().is_none() => return Err(failed(&url, &"it names no host")),
            Some("http") => None,
            Some("https") => {
                let own = section.and_then(|section| section.ca.clone());
                let roots =
                    own.or_else(|| said("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from));
                Some(connector(roots.as_deref().unwrap_or(Path::new(ROOTS)))?)
            }
            _ => {
                return Err(failed(
                    &url,
                    &"it begins neither with http: nor with https:",
                ));
            }
        };
        Ok(Some(Self {
            url,
            tls,
            away: AtomicBool::new(false),
        }))
    }

    /// Where spans go.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// What sends spans there.
    pub fn exporter(self, of: &Resource) -> Result<SpanExporter> {
        let url = self.url.to_string();
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

    async fn ask(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (host, port) = (self.url.host().unwrap_or_default(), self.url.port_u16());
        // An address of IPv6 is in brackets.
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((name, port)).await?;
        let authority = self.url.authority().map(|authority| authority.as_str());
        let host = HeaderValue::from_str(authority.unwrap_or_default())?;
        request.headers_mut().insert(HOST, host);
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse()?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(name.to_owned())?;
                exchange(tls.connect(name, stream).await?, request).await
            }
        }
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
                tracing::warn!(collector = %self.url, why, "spans are not taken: those that do not fit in are lost");
            }
            None if was_away => tracing::info!(collector = %self.url, "spans are taken again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let asked = timeout(PATIENCE, self.ask(request)).await;
        let answer = asked.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}").into()));
        self.note(&answer);
        answer
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collector").field(&self.url).finish()
    }
}

/// One request on a connection of its own: there is one in a second at most.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with its sender; what goes wrong on it, the request is told.
    tokio::spawn(async move { drop(connection.await) });
    let answer = sender.send_request(request.map(Full::new)).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, LONGEST_ANSWER).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// Who sends: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say more, or otherwise.
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

/// What a variable of the environment says; an empty one says nothing (OpenTelemetry specification,
/// "Environment Variable Specification").
fn said(name: &str) -> Option<String> {
    env::var(name).ok().filter(|said| !said.is_empty())
}

fn connector(roots: &Path) -> Result<TlsConnector> {
    let read = CertificateDer::pem_file_iter(roots).map_err(|e| failed(roots.display(), &e))?;
    let mut store = RootCertStore::empty();
    // Of the system's roots there may be some that are too old to be read.
    let (taken, _) = store.add_parsable_certificates(read.filter_map(std::result::Result::ok));
    if taken == 0 {
        return Err(failed(roots.display(), &"there is no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(roots.display(), &e))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn failed(what: impl fmt::Display, why: &dyn fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("traces: {what}: {why}"))
}
