//! A host that is played by a test.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection to a host.
pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Connects to `web2` as the host whose files are in this folder, and offers these protocols.
pub fn connect(address: &str, files: &Path, protocols: &[&[u8]]) -> Stream {
    let file = |name| files.join(name);
    let read = |name| {
        let read = CertificateDer::pem_file_iter(file(name)).expect("a certificate");
        read.map(|certificate| certificate.expect("a certificate"))
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read("ca.pem"));
    let key = PrivateKeyDer::from_pem_file(file("node.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_client_auth_cert(read("node.pem").collect(), key)
        .expect("a certificate with its key");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let server = "web2".try_into().expect("a name");
    let tls = ClientConnection::new(Arc::new(config), server).expect("settings that fit");
    StreamOwned::new(tls, TcpStream::connect(address).expect("the port"))
}
