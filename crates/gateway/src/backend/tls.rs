//! TLS to a server. Its certificate is always verified, for the name in its URL.

use std::path::Path;

use boring::error::ErrorStack;
use boring::ssl::{SslConnector, SslMethod, SslVersion};
use boring::x509::store::X509StoreBuilder;
use hsmux_token::Result;
use tokio_boring::SslStream;

use super::stream::BackendStream;
use crate::certificate::{chain, wrong};
use crate::tls::SUITES;

/// A connector that trusts these roots, or else the system's.
pub fn connector(roots: Option<&Path>, http2: bool) -> Result<SslConnector> {
    let named = |e: ErrorStack| wrong("backend_ca", e);
    let protocol: &[u8] = if http2 { b"\x02h2" } else { b"\x08http/1.1" };
    let mut builder = SslConnector::builder(SslMethod::tls()).map_err(named)?;
    builder
        .set_min_proto_version(Some(SslVersion::TLS1_2))
        .and_then(|()| builder.set_strict_cipher_list(SUITES))
        .and_then(|()| builder.set_alpn_protos(protocol))
        .map_err(named)?;
    if let Some(roots) = roots {
        let mut store = X509StoreBuilder::new().map_err(named)?;
        for root in chain(roots)? {
            store.add_cert(&root).map_err(named)?;
        }
        builder.set_cert_store_builder(store);
    }
    Ok(builder.build())
}

/// The handshake. It sends SNI unless the name is an address.
pub async fn handshake(
    tls: &SslConnector,
    name: &str,
    stream: BackendStream,
) -> Result<SslStream<BackendStream>, String> {
    let config = tls.configure().map_err(|e| e.to_string())?;
    let shaken = tokio_boring::connect(config, name, stream).await;
    shaken.map_err(|e| e.to_string())
}
