//! HTTPS: the server's certificate, and whose certificates clients may show.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hsmux_pool::config::Tls;
use hsmux_pool::stamp::Stamp;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// HTTPS with the certificates of now: new connections have them, those that are open stay as they are.
pub struct Https {
    current: ArcSwap<(Tls, Stamp)>,
    server: ArcSwap<ServerConfig>,
}

impl Https {
    /// Reads the certificates and the key.
    pub fn start(files: &Tls) -> Result<Self> {
        let stamp = stamp(files);
        Ok(Self {
            server: ArcSwap::new(config(files)?),
            current: ArcSwap::from_pointee((files.clone(), stamp)),
        })
    }

    /// For a new connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.server.load_full())
    }

    /// Reads them again where these are others, or have changed; answers whether that was so. What cannot
    /// be read, or does not fit together, is not taken over, and tried again when it has changed.
    pub fn refresh(&self, files: &Tls) -> Result<bool> {
        let now = (files.clone(), stamp(files));
        if **self.current.load() == now {
            return Ok(false);
        }
        self.current.store(Arc::new(now));
        self.server.store(config(files)?);
        Ok(true)
    }
}

fn stamp(files: &Tls) -> Stamp {
    let certificates = [&files.certificate, &files.key].into_iter();
    Stamp::of(certificates.chain(&files.client_ca).map(|file| &**file))
}

/// TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. A client without a certificate may show a token.
fn config(tls: &Tls) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&tls.certificate)?;
    let key = SecretReaders::Group.read(&tls.key);
    let key = key.map_err(|e| failed(&tls.key, &e))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| failed(&tls.key, &e))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&tls.certificate, &e))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|e| failed(file, &e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|e| failed(file, &e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| failed(&tls.key, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if tls.client_ca.is_some() {
        // A session that is resumed would not have its certificate looked at, which may have expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).map_err(|e| failed(file, &e))?;
    let chain: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|e| failed(file, &e))?;
    if chain.is_empty() {
        return Err(failed(file, &"there is no certificate in it"));
    }
    Ok(chain)
}

fn failed(file: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("{}: {error}", file.display()))
}
