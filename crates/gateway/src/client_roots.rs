//! The root certificates of a site's `client_ca`.

use std::sync::Arc;

use boring::error::ErrorStack;
use boring::ssl::SslContextBuilder;
use boring::stack::Stack;
use boring::x509::store::{X509Store, X509StoreBuilder};
use boring::x509::{X509, X509StoreContext, X509VerifyError, X509VerifyResult};
use hsmux_config::Clients;
use hsmux_token::Result;

use crate::certificate::{chain, wrong};

/// The root certificates that clients' certificates have to lead to.
pub struct ClientRoots {
    certificates: Vec<X509>,
    /// The same certificates (DER).
    encoded: Vec<Vec<u8>>,
    store: X509Store,
}

impl ClientRoots {
    /// Reads a site's `client_ca`. Returns the roots of `before` if they are the same, so that no client is verified
    /// again.
    pub fn read(clients: &Clients, before: Option<&Arc<Self>>) -> Result<Arc<Self>> {
        let roots = Self::of(chain(&clients.roots)?);
        let roots = roots.map_err(|e| wrong(clients.roots.display(), e))?;
        Ok(match before {
            Some(before) if before.encoded == roots.encoded => Arc::clone(before),
            _ => Arc::new(roots),
        })
    }

    /// These certificates as roots.
    pub fn of(certificates: Vec<X509>) -> Result<Self, ErrorStack> {
        let mut store = X509StoreBuilder::new()?;
        let mut encoded = Vec::new();
        for root in &certificates {
            store.add_cert(root)?;
            encoded.push(root.to_der()?);
        }
        Ok(Self {
            certificates,
            encoded,
            store: store.build(),
        })
    }

    /// The certificates (DER).
    pub fn encoded(&self) -> &[Vec<u8>] {
        &self.encoded
    }

    /// Makes handshakes verify clients against these roots, and name them to clients.
    pub fn apply(&self, context: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        for root in &self.certificates {
            context.add_client_ca(root)?;
        }
        context.set_cert_store(self.store.clone());
        Ok(())
    }

    /// Verifies a client's certificate as of now, with the others that it has sent (DER). The error is the reason.
    pub fn verify(&self, own: &[u8], others: &[Vec<u8>]) -> Result<(), String> {
        let verified = self.verify_now(own, others);
        let verified = verified.map_err(|e| e.to_string())?;
        verified.map_err(|e| e.to_string())
    }

    /// The handshake has verified the purpose of the certificate (extended key usage). `boring` (5.4) has no safe
    /// function that would verify it again.
    fn verify_now(&self, own: &[u8], others: &[Vec<u8>]) -> Result<X509VerifyResult, ErrorStack> {
        let own = X509::from_der(own)?;
        let mut sent = Stack::new()?;
        for der in others {
            sent.push(X509::from_der(der)?)?;
        }
        X509StoreContext::new()?.init(&self.store, &own, &sent, |context| {
            if context.verify_cert()? {
                return Ok(Ok(()));
            }
            let refused = Err(X509VerifyError::UNSPECIFIED);
            Ok(context.verify_result().and(refused))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::generate_simple_self_signed;
    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn unchanged_roots_are_the_same_object() {
        let file = NamedTempFile::new().unwrap();
        let clients = Clients {
            roots: file.path().to_owned(),
            lists: Vec::new(),
            required: true,
        };
        let write_root = || {
            let made = generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
            let root = X509::from_der(made.cert.der()).unwrap();
            fs::write(file.path(), root.to_pem().unwrap()).unwrap();
        };
        let read = |before| ClientRoots::read(&clients, before).unwrap();
        write_root();
        let first = read(None);
        assert!(Arc::ptr_eq(&read(Some(&first)), &first));
        write_root();
        assert!(!Arc::ptr_eq(&read(Some(&first)), &first));
    }
}
