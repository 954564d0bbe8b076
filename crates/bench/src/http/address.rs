//! The address of the service, and connections to it: TCP, TLS or a unix socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsmux_token::{Error, Kind, Result};
use hyper::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// A byte stream to the service.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The address of the service.
pub struct ServiceAddress {
    transport: Transport,
    /// The Host header.
    pub host: String,
    /// The path before `/v1`.
    pub prefix: String,
}

enum Transport {
    Unix(PathBuf),
    Tcp(String, u16),
    Tls(String, u16, TlsConnector, ServerName<'static>),
}

impl ServiceAddress {
    /// Parses a URL; `ca` is the root for the server's certificate.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self> {
        let wrong = |why: &str| {
            let message = format!(
                "{url}: {why}; write http://HOST:PORT, https://HOST:PORT or unix:/path/of/the.sock"
            );
            Error::request(Kind::Invalid, message)
        };
        if let Some(path) = url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return Ok(Self {
                transport: Transport::Unix(path.into()),
                host: "localhost".into(),
                prefix: String::new(),
            });
        }
        let uri: Uri = url.parse().map_err(|_| wrong("no URL"))?;
        let host = uri.host().ok_or_else(|| wrong("no host in it"))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = |usual| uri.port_u16().unwrap_or(usual);
        let transport = match uri.scheme_str() {
            Some("http") => Transport::Tcp(bare.into(), port(80)),
            Some("https") => {
                let ca =
                    ca.ok_or_else(|| wrong("https needs the root of its certificate (--ca)"))?;
                let name = ServerName::try_from(bare.to_owned()).map_err(|_| wrong("no host"))?;
                Transport::Tls(bare.into(), port(443), trusting(ca)?, name)
            }
            _ => return Err(wrong("neither http nor https nor unix")),
        };
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        Ok(Self {
            transport,
            host: authority.to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Connects.
    pub async fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match &self.transport {
            Transport::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Transport::Tcp(host, port) => Box::new(tcp(host, *port).await?),
            Transport::Tls(host, port, connector, name) => {
                let stream = tcp(host, *port).await?;
                Box::new(connector.connect(name.clone(), stream).await?)
            }
        })
    }
}

async fn tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // A request is one write, so Nagle's algorithm would only delay it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// TLS 1.2 and 1.3 for servers with certificates of these roots.
fn trusting(file: &Path) -> Result<TlsConnector> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::pool(Kind::Environment, format!("{}: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(file).map_err(|e| failed(&e))? {
        let root = root.map_err(|e| failed(&e))?;
        roots.add(root).map_err(|e| failed(&e))?;
    }
    if roots.is_empty() {
        return Err(failed(&"there is no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let address = ServiceAddress::new("http://[::1]:8200/keys/", None).unwrap();
        assert_eq!((&*address.host, &*address.prefix), ("[::1]:8200", "/keys"));
        assert!(matches!(address.transport, Transport::Tcp(host, 8200) if host == "::1"));
        let address = ServiceAddress::new("unix:/run/broker.sock", None).unwrap();
        assert!(
            matches!(address.transport, Transport::Unix(path) if path == Path::new("/run/broker.sock"))
        );
        for (url, why) in [
            ("https://keys.test", "--ca"),
            ("ftp://keys.test", "neither"),
            ("127.0.0.1:8200", "write http://"),
        ] {
            let error = ServiceAddress::new(url, None).err().unwrap().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
