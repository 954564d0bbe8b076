//! HTTPS: the server's certificate, and whose certificates clients may show.

use std::path::Path;
use std::sync::Arc;

use hsmux_pool::config::Tls;
use hsmux_token::{Error, Kind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. A client without a certificate may show a token.
pub fn config(tls: &Tls) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| failed(&tls.key, &e))?;
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
