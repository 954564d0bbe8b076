//! Requests to one URL, such as the keys of a JWT issuer or a collector of spans. HTTP/1.1, one connection per request.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The system's trusted roots, as Debian installs them.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// One URL of a server.
pub struct HttpEndpoint {
    url: Uri,
    /// `None`: plain HTTP.
    tls: Option<TlsConnector>,
}

/// Why there is no answer.
pub type Failure = Box<dyn StdError + Send + Sync>;

impl HttpEndpoint {
    /// Takes an `http:` or `https:` URL. The server's certificate is verified against `roots` (PEM), or else the
    /// system's.
    pub fn new(url: &str, roots: Option<&Path>) -> Result<Self> {
        let url: Uri = url.parse().map_err(|e| failed(&url, &e))?;
        let tls = match url.scheme_str() {
            _ if url.host().is_none() => return Err(failed(&url, "it names no host")),
            Some("http") => None,
            Some("https") => Some(connector(roots.unwrap_or(Path::new(ROOTS)))?),
            _ => {
                let why = "it begins neither with http: nor with https:";
                return Err(failed(&url, why));
            }
        };
        Ok(Self { url, tls })
    }

    /// Its URL.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// Fetches the document within `patience`, of at most `longest` bytes. Redirects are not followed.
    pub async fn get(
        &self,
        accept: &'static str,
        longest: usize,
        patience: Duration,
    ) -> Result<Bytes> {
        let mut request = Request::new(Bytes::new());
        let accept = HeaderValue::from_static(accept);
        request.headers_mut().insert(ACCEPT, accept);
        let answer = timeout(patience, self.ask(request, longest)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer in {patience:?}").into()));
        let answer = answer.map_err(|e| failed(&self.url, &*e))?;
        if answer.status() != StatusCode::OK {
            let why = format!("it answers {}", answer.status());
            return Err(failed(&self.url, &why));
        }
        Ok(answer.into_body())
    }

    /// Sends a request to this URL, which replaces the one in the request. The answer's body has at most `longest`
    /// bytes.
    pub async fn ask(
        &self,
        mut request: Request<Bytes>,
        longest: usize,
    ) -> Result<Response<Bytes>, Failure> {
        // A URL has IPv6 addresses in brackets.
        let host = self.url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = if self.tls.is_some() { 443 } else { 80 };
        let stream = TcpStream::connect((host, self.url.port_u16().unwrap_or(port))).await?;
        let authority = self.url.authority().map_or("", |of| of.as_str());
        let authority = HeaderValue::from_str(authority)?;
        request.headers_mut().insert(HOST, authority);
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse()?;
        match &self.tls {
            None => exchange(stream, request, longest).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned())?;
                exchange(tls.connect(name, stream).await?, request, longest).await
            }
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Bytes>,
    longest: usize,
) -> Result<Response<Bytes>, Failure> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with its sender. The request gets its errors.
    tokio::spawn(async move { drop(connection.await) });
    let answer = sender.send_request(request.map(Full::new)).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, longest).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

fn connector(roots: &Path) -> Result<TlsConnector> {
    let place = roots.display();
    let read = CertificateDer::pem_file_iter(roots).map_err(|e| failed(&place, &e))?;
    let mut store = RootCertStore::empty();
    // Some of the system's roots may be too old to parse.
    let (taken, _) = store.add_parsable_certificates(read.filter_map(std::result::Result::ok));
    if taken == 0 {
        return Err(failed(&place, "there is no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&place, &e))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn failed(what: &dyn fmt::Display, why: &(impl fmt::Display + ?Sized)) -> Error {
    Error::pool(Kind::Environment, format!("{what}: {why}"))
}
