//! A revocation list (RFC 5280, section 5), checked from its first byte to its last.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hsmux_software::revocation::ParsedCrl;
use hsmux_token::Result;
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::WebPkiClientVerifier;
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};
use x509_cert::spki::AlgorithmIdentifierOwned;

use crate::certificate::list;
use crate::identity::{certificates, failed};
use crate::signature;

/// The authorities that a host believes.
pub struct TrustedAuthorities {
    certificates: Vec<Certificate>,
    roots: Arc<RootCertStore>,
}

/// A list that a trusted authority has signed, and that TLS can use.
#[derive(Clone)]
pub struct Crl {
    /// As it was signed.
    pub der: Arc<[u8]>,
    /// Name and key of the authority.
    authority: Vec<u8>,
    edition: CrlVersion,
}

/// Later ones are greater.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CrlVersion {
    /// The CRL number, its length first; nothing for a list without one.
    number: (usize, Vec<u8>),
    /// When it was made (thisUpdate), after 1970.
    since: Duration,
}

impl TrustedAuthorities {
    /// None of them yet.
    pub fn nobody() -> Self {
        Self {
            certificates: Vec::new(),
            roots: Arc::new(RootCertStore::empty()),
        }
    }

    /// Reads their certificates.
    pub fn read(file: &Path) -> Result<Self> {
        let mut read = Vec::new();
        let mut roots = RootCertStore::empty();
        for der in certificates(file)? {
            read.push(Certificate::from_der(&der).map_err(|e| failed(file, &e))?);
            roots.add(der).map_err(|e| failed(file, &e))?;
        }
        Ok(Self {
            certificates: read,
            roots: Arc::new(roots),
        })
    }

    /// Name and key of the authority that has signed a list.
    fn signer(&self, list: &ParsedCrl) -> Option<Vec<u8>> {
        let algorithm = AlgorithmIdentifierOwned::from_der(&list.algorithm).ok()?;
        let has_signed = |certificate: &&Certificate| {
            let certificate = certificate.tbs_certificate();
            let key = certificate.subject_public_key_info();
            let subject = certificate.subject().to_der();
            subject.is_ok_and(|subject| subject == list.issuer)
                && signature::verify(key, &algorithm, &list.signed, &list.signature).is_ok()
        };
        let authority = self.certificates.iter().find(has_signed)?;
        let authority = authority.tbs_certificate();
        let mut named = authority.subject().to_der().ok()?;
        named.extend(authority.subject_public_key_info().to_der().ok()?);
        Some(named)
    }

    /// An error if TLS could not use this list.
    fn can_use(&self, der: &[u8]) -> Result<(), String> {
        let list = CertificateRevocationListDer::from(der.to_vec());
        let provider = Arc::new(default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), provider);
        let built = builder.with_crls([list]).build();
        built.map(drop).map_err(|e| e.to_string())
    }
}

impl Crl {
    /// Checks a list; `Err` is the problem.
    pub fn checked(der: &[u8], believed: &TrustedAuthorities) -> Result<Self, String> {
        let list = list(der)?;
        // Only DER is accepted: then the signed bytes are the bytes that are read.
        if !list.is_der {
            return Err("it is not in the form that is signed (DER)".into());
        }
        let signer = believed.signer(&list);
        let authority = signer.ok_or("no authority that this host believes has signed it")?;
        believed.can_use(der)?;
        Ok(Self {
            der: der.into(),
            authority,
            edition: CrlVersion::of(&list)?,
        })
    }

    /// True if both are of one authority.
    pub fn is_of_same(&self, other: &Self) -> bool {
        self.authority == other.authority
    }

    /// True if none of these lists of its authority is as new.
    pub fn is_news_to(&self, others: &[Self]) -> bool {
        let mut same = others.iter().filter(|other| other.is_of_same(self));
        same.all(|other| other.edition < self.edition)
    }

    /// Adds it to other lists, in place of an older one; returns whether it was newer.
    pub fn join(&self, others: &mut Vec<Self>) -> bool {
        let news = self.is_news_to(others);
        if news {
            others.retain(|other| !other.is_of_same(self));
            others.push(self.clone());
        }
        news
    }
}

impl CrlVersion {
    fn of(list: &ParsedCrl) -> Result<Self, String> {
        if list.is_part {
            return Err("it is perhaps a part of a list: it has a critical extension".into());
        }
        let digits = list.number()?.unwrap_or_default();
        Ok(Self {
            number: (digits.len(), digits),
            since: list.since,
        })
    }
}
