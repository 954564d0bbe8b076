//! Certificate revocation lists (RFC 5280, section 5) of the authorities whose certificates clients show.

mod parsed;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use der::asn1::Uint;
use der::{Decode, Encode};
use hsmux_token::{Mechanism, ck};
use parsed::number_of;
use x509_cert::Certificate;

pub use self::parsed::Parsed;
use crate::csr::algorithm;
use crate::{PublicKey, pem};

/// All lists of some authorities.
#[derive(Clone, Default, Debug)]
pub struct Revocation(Vec<List>);

#[derive(Clone, Debug)]
struct List {
    file: PathBuf,
    issuer: Vec<u8>,
    serials: HashSet<Vec<u8>>,
    /// From then on it says nothing any more (nextUpdate), after 1970.
    until: Duration,
}

/// Why a certificate is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It is on a list.
    Revoked {
        /// The authority's name.
        issuer: String,
        /// The certificate's number.
        serial: String,
    },
    /// The list of its authority, in this file, is too old.
    Expired(PathBuf),
    /// There is no list of its authority.
    NoList(String),
    /// It cannot be read.
    Unreadable(String),
}

/// What is wrong with a file.
#[derive(Debug)]
pub struct Wrong {
    /// The file.
    pub file: PathBuf,
    /// Why, and what to do.
    pub why: String,
}

/// What lists may be signed by.
const MECHANISMS: [u64; 7] = [
    ck::CKM_SHA256_RSA_PKCS,
    ck::CKM_SHA384_RSA_PKCS,
    ck::CKM_SHA512_RSA_PKCS,
    ck::CKM_ECDSA_SHA256,
    ck::CKM_ECDSA_SHA384,
    ck::CKM_ECDSA_SHA512,
    ck::CKM_EDDSA,
];

impl Revocation {
    /// Reads files of lists, PEM or DER. Each list has to be signed by one of these authorities, given by their
    /// certificates (DER).
    pub fn read<'a>(
        files: impl IntoIterator<Item = &'a Path>,
        authorities: &[Vec<u8>],
    ) -> Result<Self, Wrong> {
        let mut lists = Vec::new();
        for file in files {
            let wrong = |why: String| Wrong {
                file: file.to_owned(),
                why,
            };
            let bytes = std::fs::read(file).map_err(|e| wrong(e.to_string()))?;
            for der in blocks(bytes).map_err(wrong)? {
                lists.push(List::read(file, &der, authorities).map_err(wrong)?);
            }
        }
        Ok(Self(lists))
    }

    /// Whether the first certificate of a chain (DER) is believed at a time, after 1970: a list of its authority is
    /// good and does not name it. The others of the chain are looked for as well, if there are lists for them.
    pub fn judge<'a>(
        &self,
        chain: impl IntoIterator<Item = &'a [u8]>,
        now: Duration,
    ) -> Result<(), Refused> {
        let unreadable = |error: der::Error| Refused::Unreadable(error.to_string());
        for (at, der) in chain.into_iter().enumerate() {
            let certificate = Certificate::from_der(der).map_err(unreadable)?;
            let certificate = certificate.tbs_certificate();
            let issuer = certificate.issuer().to_der().map_err(unreadable)?;
            let mut lists = self
                .0
                .iter()
                .filter(|list| list.issuer == issuer)
                .peekable();
            if lists.peek().is_none() && at == 0 {
                return Err(Refused::NoList(certificate.issuer().to_string()));
            }
            let serial = number_of(certificate.serial_number().as_bytes());
            for list in lists {
                if list.serials.contains(serial) {
                    return Err(Refused::Revoked {
                        issuer: certificate.issuer().to_string(),
                        serial: certificate.serial_number().to_string(),
                    });
                }
                if list.until <= now {
                    return Err(Refused::Expired(list.file.clone()));
                }
            }
        }
        Ok(())
    }

    /// [`Self::judge`], if there are lists at all.
    pub fn judge_if_any<'a>(
        &self,
        chain: impl IntoIterator<Item = &'a [u8]>,
        now: Duration,
    ) -> Result<(), Refused> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.judge(chain, now)
    }

    /// The files whose lists are too old at a time, after 1970.
    pub fn expired(&self, now: Duration) -> impl Iterator<Item = &Path> {
        let old = self.0.iter().filter(move |list| list.until <= now);
        old.map(|list| &*list.file)
    }
}

impl List {
    fn read(file: &Path, der: &[u8], authorities: &[Vec<u8>]) -> Result<Self, String> {
        let list = Parsed::read(der)?;
        let issuer = &list.issuer_name;
        let has_signed = |authority: &Vec<u8>| {
            let certificate = Certificate::from_der(authority);
            let subject = certificate.and_then(|it| it.tbs_certificate().subject().to_der());
            subject.is_ok_and(|subject| subject == list.issuer)
                && PublicKey::from_certificate(authority)
                    .is_ok_and(|key| verifies(&key, &list.algorithm, &list.signed, &list.signature))
        };
        if !authorities.iter().any(has_signed) {
            return Err(format!(
                "its list of {issuer} is not signed by an authority of client_ca: \
                 the certificate of the authority that issues both has to be there"
            ));
        }
        if list.is_part {
            return Err(format!(
                "its list of {issuer} is a part of one (a critical extension): a whole list is needed"
            ));
        }
        let until = list.until.ok_or_else(|| {
            format!("its list of {issuer} does not say until when it is good (nextUpdate)")
        })?;
        Ok(Self {
            file: file.to_owned(),
            issuer: list.issuer,
            serials: list.serials,
            until,
        })
    }
}

/// Whether a key has signed this, by an algorithm (DER) that lists are signed by.
fn verifies(key: &PublicKey, named: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    let mechanisms = MECHANISMS.map(Mechanism::plain);
    let is_named = |mechanism: &&Mechanism| algorithm(mechanism).is_some_and(|it| it == named);
    let Some(mechanism) = mechanisms.iter().find(is_named) else {
        return false;
    };
    let is_ecdsa = (ck::CKM_ECDSA_SHA256..=ck::CKM_ECDSA_SHA512).contains(&mechanism.kind);
    let raw = is_ecdsa.then(|| plain(signature, key.signature_len()));
    let signature = raw.unwrap_or_else(|| Some(signature.to_vec()));
    signature.is_some_and(|signature| key.verify(mechanism, signed, &signature).is_ok())
}

/// r and s side by side, as PKCS#11 has them, of so many bytes together.
fn plain(der: &[u8], len: usize) -> Option<Vec<u8>> {
    let numbers = Vec::<Uint>::from_der(der).ok()?;
    let [r, s] = &numbers[..] else { return None };
    let mut plain = vec![0; len];
    let (first, second) = plain.split_at_mut(len / 2);
    for (half, number) in [(first, r), (second, s)] {
        let at = half.len().checked_sub(number.as_bytes().len())?;
        half[at..].copy_from_slice(number.as_bytes());
    }
    Some(plain)
}

/// The lists of a file, DER.
fn blocks(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, String> {
    const BEGIN: &str = "-----BEGIN X509 CRL-----";
    const END: &str = "-----END X509 CRL-----";
    let Some(text) = std::str::from_utf8(&bytes)
        .ok()
        .filter(|it| it.contains("-----BEGIN"))
    else {
        return Ok(vec![bytes]);
    };
    let block = |text: &str| {
        let body = text.split_once(END).map(|(body, _)| body);
        let der = body.and_then(pem::decode);
        der.ok_or_else(|| "a list in PEM is broken off, or no base64".to_owned())
    };
    let all: Vec<_> = text
        .split(BEGIN)
        .skip(1)
        .map(block)
        .collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(format!(
            "there is no certificate revocation list in it ({BEGIN})"
        ));
    }
    Ok(all)
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revoked { issuer, serial } => {
                write!(f, "the certificate {serial} of {issuer} is revoked")
            }
            Self::Expired(file) => write!(
                f,
                "the certificate revocation list {} has expired: put a new one there",
                file.display()
            ),
            Self::NoList(issuer) => write!(
                f,
                "client_crl has no certificate revocation list of {issuer}: add one"
            ),
            Self::Unreadable(why) => write!(f, "the certificate cannot be read: {why}"),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}
