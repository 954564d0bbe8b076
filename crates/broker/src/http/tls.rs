//! HTTPS: the server's certificate, and the accepted client certificates.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use hsmux_config::Tls;
use hsmux_software::revocation::{Revocation, RevocationError};
use hsmux_state::FileVersions;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// HTTPS with the current certificates; open connections keep theirs.
pub struct Https {
    current: ArcSwap<(Tls, FileVersions)>,
    server: ArcSwap<TlsState>,
    /// Notifies when the state has changed, or when a revocation list has expired.
    changes: watch::Sender<()>,
    expired: AtomicUsize,
}

/// The TLS state of one version of the files.
struct TlsState {
    config: Arc<ServerConfig>,
    revocation: Arc<Revocation>,
}

/// Accepts a client's certificate that leads to a root, unless a list revokes it.
#[derive(Debug)]
struct ClientVerifier {
    roots: Arc<dyn ClientCertVerifier>,
    revocation: Arc<Revocation>,
}

impl Https {
    /// Reads the certificates and the key.
    pub fn start(files: &Tls) -> Result<Self> {
        let versions = versions(files);
        Ok(Self {
            server: ArcSwap::from_pointee(server(files, &Revocation::default())?),
            current: ArcSwap::from_pointee((files.clone(), versions)),
            changes: watch::Sender::new(()),
            expired: AtomicUsize::new(0),
        })
    }

    /// For a new connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.server.load().config))
    }

    /// Reads the files again if the paths or the files have changed; returns whether they have. Unreadable or
    /// inconsistent files change nothing, and are tried again when they change.
    pub fn refresh(&self, files: &Tls) -> Result<bool> {
        self.look_at_lists();
        let now = (files.clone(), versions(files));
        if **self.current.load() == now {
            return Ok(false);
        }
        self.current.store(Arc::new(now));
        let before = Arc::clone(&self.server.load().revocation);
        self.server.store(Arc::new(server(files, &before)?));
        self.changes.send_replace(());
        self.look_at_lists();
        Ok(true)
    }

    /// Reports revocation lists that have expired since the last call.
    fn look_at_lists(&self) {
        let server = self.server.load();
        let expired: Vec<_> = server.revocation.expired(now()).collect();
        if expired.len() <= self.expired.swap(expired.len(), Ordering::Relaxed) {
            return;
        }
        for file in expired {
            tracing::warn!(
                "THE CERTIFICATE REVOCATION LIST {} HAS EXPIRED: client certificates of its authority are refused until \
                 a new list is there.",
                file.display()
            );
        }
        self.changes.send_replace(());
    }

    /// Ends once these certificates of a client, its own first, are no longer accepted; never without one.
    pub async fn refused(&self, chain: &[CertificateDer<'_>]) {
        if chain.is_empty() {
            return pending().await;
        }
        let mut changes = self.changes.subscribe();
        loop {
            let ders = chain.iter().map(|der| &**der);
            let judged = self.server.load().revocation.judge_if_any(ders, now());
            if let Err(why) = judged {
                return tracing::warn!("a client's connection is ended: {why}");
            }
            if changes.changed().await.is_err() {
                return pending().await;
            }
        }
    }
}

/// After 1970.
fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.roots.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.roots.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.roots.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        at: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.roots.verify_client_cert(own, others, at)?;
        let chain = std::iter::once(own).chain(others).map(|der| &**der);
        let judged = self
            .revocation
            .judge_if_any(chain, Duration::from_secs(at.as_secs()));
        judged.map(|()| verified).map_err(|why| {
            tracing::info!("a client's certificate is refused: {why}");
            rustls::Error::InvalidCertificate(match why {
                RevocationError::Revoked { .. } => CertificateError::Revoked,
                RevocationError::Expired(_) => CertificateError::ExpiredRevocationList,
                _ => CertificateError::UnknownRevocationStatus,
            })
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.roots.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.roots.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.roots.supported_verify_schemes()
    }
}

fn versions(files: &Tls) -> FileVersions {
    let certificates = [&files.certificate, &files.key].into_iter();
    let clients = files.client_ca.iter().chain(&files.client_crl);
    FileVersions::of(certificates.chain(clients).map(|file| &**file))
}

/// TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. A client without a certificate may show a token. An older revocation list
/// never replaces a newer one.
fn server(tls: &Tls, before: &Revocation) -> Result<TlsState> {
    let mut revocation = Arc::default();
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
            let read = certificates(file)?;
            let authorities: Vec<_> = read.iter().map(|root| root.to_vec()).collect();
            for root in read {
                roots.add(root).map_err(|e| failed(file, &e))?;
            }
            let lists = tls.client_crl.iter().map(|file| &**file);
            let lists = Revocation::read(lists, &authorities);
            let mut lists =
                lists.map_err(|e| failed(&e.file, &format!("client_crl: {}", e.why)))?;
            // Without `client_crl` there are no lists.
            if !tls.client_crl.is_empty() {
                for outdated in lists.keep_newer(before) {
                    tracing::warn!("client_crl {outdated}");
                }
            }
            revocation = Arc::new(lists);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|e| failed(file, &e))?;
            builder.with_client_cert_verifier(Arc::new(ClientVerifier {
                roots: verifier,
                revocation: Arc::clone(&revocation),
            }))
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| failed(&tls.key, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if tls.client_ca.is_some() {
        // A resumed session would skip the check of its certificate, which may be expired or revoked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(TlsState {
        config: Arc::new(config),
        revocation,
    })
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
