//! The certificates of an open connection's client. They are checked again when the sites have changed.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use boring::error::ErrorStack;
use boring::ssl::SslRef;
use boring::x509::X509Ref;
use hsmux_software::revocation::{Revocation, RevocationError};
use hsmux_token::LogLines;
use tokio::sync::watch;

use crate::app_state::AppState;
use crate::client_roots::ClientRoots;
use crate::revocation;
use crate::sites::{ServedSite, Sites};

/// Lines of the log about ended connections: one reload may end all connections of a site.
static WRITTEN: LogLines = LogLines::new(LogLines::USUAL);

/// A client after its handshake.
pub struct ClientChain {
    /// Its site, as it was at the handshake.
    served: Arc<ServedSite>,
    /// The certificates that it has presented, its own first (DER). Empty: none.
    chain: Vec<Vec<u8>>,
    /// Changes of the sites since the handshake began.
    changes: watch::Receiver<()>,
}

/// The reason why a site no longer accepts a client.
#[derive(Debug)]
enum ClientRefusal {
    /// The client has presented no certificate, and the site requires one.
    NoCertificate,
    /// The certificate does not lead to `client_ca`.
    Untrusted(String),
    /// The certificate is revoked, or its list has expired.
    Revoked(RevocationError),
}

impl fmt::Display for ClientRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => write!(f, "it has no certificate"),
            Self::Untrusted(why) => {
                write!(f, "its certificate does not lead to client_ca: {why}")
            }
            Self::Revoked(why) => why.fmt(f),
        }
    }
}

impl ClientChain {
    /// The client of a connection. Subscribe to `changes` before the handshake, which reads the sites. Then no change
    /// is missed.
    pub fn new(ssl: &SslRef, served: &Arc<ServedSite>, changes: watch::Receiver<()>) -> Self {
        Self {
            served: Arc::clone(served),
            // One that cannot be read is never accepted again.
            chain: presented(ssl).unwrap_or_else(|_| vec![Vec::new()]),
            changes,
        }
    }

    /// Returns once the site no longer accepts the client.
    pub async fn until_refused(&self, app: &AppState) {
        let mut changes = self.changes.clone();
        let mut verified = self.served.client_roots.clone();
        while changes.changed().await.is_ok() {
            let Err(why) = self.check(&app.sites.load(), &mut verified) else {
                continue;
            };
            if WRITTEN.may_add() {
                tracing::warn!("a client's connection is ended: {why}");
            }
            return;
        }
        pending::<()>().await;
    }

    /// Checks the client for all names of its site, because HTTP may use the connection for each of them.
    fn check(
        &self,
        sites: &Sites,
        verified: &mut Option<Arc<ClientRoots>>,
    ) -> Result<(), ClientRefusal> {
        for served in sites.serving(&self.served.site.names) {
            let (Some(clients), Some(roots)) = (&served.site.clients, &served.client_roots) else {
                continue;
            };
            let lists = served.revocation.as_deref();
            accept(&self.chain, clients.required, roots, lists, verified)?;
        }
        Ok(())
    }
}

/// The certificates that a client has presented, its own first (DER).
fn presented(ssl: &SslRef) -> Result<Vec<Vec<u8>>, ErrorStack> {
    let Some(own) = ssl.peer_certificate() else {
        return Ok(Vec::new());
    };
    let others = ssl.peer_cert_chain().into_iter().flatten();
    let others = others.map(X509Ref::to_der);
    std::iter::once(own.to_der()).chain(others).collect()
}

/// Checks a client's certificates against a site's roots and lists. `verified` are the roots that the certificates were
/// last verified against.
fn accept(
    chain: &[Vec<u8>],
    is_required: bool,
    roots: &Arc<ClientRoots>,
    lists: Option<&Revocation>,
    verified: &mut Option<Arc<ClientRoots>>,
) -> Result<(), ClientRefusal> {
    let Some((own, others)) = chain.split_first() else {
        return if is_required {
            Err(ClientRefusal::NoCertificate)
        } else {
            Ok(())
        };
    };
    if verified
        .as_ref()
        .is_none_or(|last| !Arc::ptr_eq(last, roots))
    {
        let trusted = roots.verify(own, others);
        trusted.map_err(ClientRefusal::Untrusted)?;
        *verified = Some(Arc::clone(roots));
    }
    let judged = lists.map_or(Ok(()), |lists| revocation::check_encoded(lists, chain));
    judged.map_err(ClientRefusal::Revoked)
}

#[cfg(test)]
mod tests {
    use boring::x509::X509;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// A client's certificate that is its own root (DER).
    fn certificate(name: &str) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn roots(certificates: &[&Vec<u8>]) -> Arc<ClientRoots> {
        let certificates = certificates.iter().map(|der| X509::from_der(der).unwrap());
        Arc::new(ClientRoots::of(certificates.collect()).unwrap())
    }

    #[test]
    fn a_client_without_a_certificate_is_refused_if_one_is_required() {
        let roots = roots(&[&certificate("one")]);
        assert!(accept(&[], false, &roots, None, &mut None).is_ok());
        let refused = accept(&[], true, &roots, None, &mut None);
        assert!(matches!(refused, Err(ClientRefusal::NoCertificate)));
    }

    #[test]
    fn a_certificate_has_to_lead_to_the_roots_of_now() {
        let (own, other) = (certificate("own"), certificate("other"));
        let chain = [own.clone()];
        let at_handshake = roots(&[&own]);
        let mut verified = Some(Arc::clone(&at_handshake));
        // An added root ends nothing.
        let both = roots(&[&other, &own]);
        assert!(accept(&chain, true, &both, None, &mut verified).is_ok());
        assert!(verified.as_ref().is_some_and(|it| Arc::ptr_eq(it, &both)));
        for is_required in [true, false] {
            let refused = accept(&chain, is_required, &roots(&[&other]), None, &mut verified);
            assert!(matches!(refused, Err(ClientRefusal::Untrusted(_))));
        }
        assert!(accept(&chain, true, &at_handshake, None, &mut verified).is_ok());
    }

    #[test]
    fn a_certificate_is_verified_again_only_against_other_roots() {
        let stranger = [certificate("stranger")];
        let same = roots(&[&certificate("one")]);
        let mut verified = Some(Arc::clone(&same));
        assert!(accept(&stranger, true, &same, None, &mut verified).is_ok());
        assert!(accept(&stranger, true, &same, None, &mut None).is_err());
    }
}
