//! A host's certificate, key and authorities as settings of TLS.
//!
//! TLS 1.3 alone; both sides show certificates. Sessions are not resumed: a ticket would bring back a revoked
//! certificate.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use hsmux_config::Identity;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::certificate::{self, PeerCertificate, Serial};
use crate::revocation;

/// A host's files, read.
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// The serial numbers of revoked certificates.
    pub revoked: HashSet<Serial>,
    /// True if it stores lists, and so exchanges them with other hosts.
    exchanges: bool,
    /// This host's own certificate.
    pub own: PeerCertificate,
    provider: Arc<CryptoProvider>,
}

impl TlsIdentity {
    /// Reads the files.
    pub fn read(identity: &Identity) -> Result<Self> {
        let chain = certificates(&identity.certificate)?;
        let own = PeerCertificate::of(&chain).map_err(|e| failed(&identity.certificate, &e))?;
        // The key alone proves that a host is this one.
        let key = SecretReaders::Owner
            .read(&identity.key)
            .map_err(|e| failed(&identity.key, &e))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| failed(&identity.key, &e))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&identity.ca)? {
            roots.add(root).map_err(|e| failed(&identity.ca, &e))?;
        }
        // TLS finds the list for a certificate by the authority's name alone, and refuses certificates with the wrong
        // one.
        if identity.revoked.is_some() && share_a_name(&roots) {
            let message = "there are two authorities of one name in it: make one of another name, with \
                           hsmux node ca init --name";
            return Err(failed(&identity.ca, &message));
        }
        let (lists, revoked) = match &identity.revoked {
            None => Default::default(),
            Some(file) => (lists(file)?, revoked(file)?),
        };
        Ok(Self {
            chain,
            key,
            roots: Arc::new(roots),
            lists,
            revoked,
            exchanges: identity.revoked.is_some(),
            own,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        })
    }

    /// Verifies hosts that connect to this one.
    pub fn clients(&self) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone())
            .with_crls(self.lists.iter().cloned())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))
    }

    /// Verifies hosts that this one connects to.
    pub fn servers(&self) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        WebPkiServerVerifier::builder_with_provider(self.roots.clone(), self.provider.clone())
            .with_crls(self.lists.iter().cloned())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status()
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))
    }

    /// The configuration of the serving side.
    pub fn server(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(self.clients()?);
        let mut config = builder.with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if self.exchanges {
            config.alpn_protocols = vec![revocation::PROTOCOL.to_vec()];
        }
        Ok(Arc::new(config))
    }

    /// For the side that connects.
    pub fn client(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(self.servers()?);
        let chain = self.chain.clone();
        let mut config = builder.with_client_auth_cert(chain, self.key.clone_key())?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// True if two authorities with different keys have the same name.
fn share_a_name(roots: &RootCertStore) -> bool {
    let all = &roots.roots;
    all.iter().any(|one| {
        let key = &one.subject_public_key_info;
        let mut same = all.iter().filter(|other| other.subject == one.subject);
        same.any(|other| other.subject_public_key_info != *key)
    })
}

/// The error of files that do not fit together.
pub fn unfit(identity: &Identity, error: &rustls::Error) -> Error {
    let (certificate, key) = (&identity.certificate, &identity.key);
    let files = format!("{}, {}", certificate.display(), key.display());
    Error::pool(Kind::Environment, format!("{files}: {error}"))
}

/// The certificates of a file: at least one.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).map_err(|e| failed(file, &e))?;
    let chain: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|e| failed(file, &e))?;
    if chain.is_empty() {
        return Err(failed(file, &"there is no certificate in it"));
    }
    Ok(chain)
}

/// The serial numbers of revoked certificates. A file without a list is an error: it does not mean that none is
/// revoked.
pub fn revoked(file: &Path) -> Result<HashSet<Serial>> {
    let lists = lists(file)?;
    if lists.is_empty() {
        let message = "there is no list of revoked certificates in it (PEM)";
        return Err(failed(file, &message));
    }
    let mut all = HashSet::new();
    for list in lists {
        all.extend(certificate::revoked(&list).map_err(|e| failed(file, &e))?);
    }
    Ok(all)
}

/// The revocation lists in a file, unverified.
pub fn lists(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let read = CertificateRevocationListDer::pem_file_iter(file).map_err(|e| failed(file, &e))?;
    read.collect::<Result<_, _>>().map_err(|e| failed(file, &e))
}

/// The error of a file.
pub fn failed(file: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Environment, format!("{}: {error}", file.display()))
}
