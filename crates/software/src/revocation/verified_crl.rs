//! One list, signed by an authority.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use der::asn1::Uint;
use der::{Decode, Encode};
use hsmux_token::{Mechanism, ck};
use x509_cert::Certificate;

use super::ParsedCrl;
use crate::csr::algorithm;
use crate::{PublicKey, pem};

/// A list whose signature was verified.
#[derive(Clone, Debug)]
pub(super) struct VerifiedCrl {
    pub file: PathBuf,
    /// The certificate (DER) of the authority that has signed it.
    pub authority: Vec<u8>,
    pub issuer: Vec<u8>,
    pub issuer_name: String,
    pub serials: HashSet<Vec<u8>>,
    /// When it was made (thisUpdate), after 1970.
    pub since: Duration,
    /// From then on it says nothing any more (nextUpdate), after 1970.
    pub until: Duration,
}

/// Bytes of a file: the largest lists of public authorities have 20 MiB.
const LONGEST: u64 = 64 << 20;

/// The accepted signature algorithms of lists.
const MECHANISMS: [u64; 7] = [
    ck::CKM_SHA256_RSA_PKCS,
    ck::CKM_SHA384_RSA_PKCS,
    ck::CKM_SHA512_RSA_PKCS,
    ck::CKM_ECDSA_SHA256,
    ck::CKM_ECDSA_SHA384,
    ck::CKM_ECDSA_SHA512,
    ck::CKM_EDDSA,
];

impl VerifiedCrl {
    pub fn read(file: &Path, der: &[u8], authorities: &[Vec<u8>]) -> Result<Self, String> {
        let list = ParsedCrl::read(der)?;
        let issuer = &list.issuer_name;
        let is_signed_by = |authority: &&Vec<u8>| {
            let certificate = Certificate::from_der(authority);
            let subject = certificate.and_then(|it| it.tbs_certificate().subject().to_der());
            subject.is_ok_and(|subject| subject == list.issuer)
                && PublicKey::from_certificate(authority)
                    .is_ok_and(|key| verifies(&key, &list.algorithm, &list.signed, &list.signature))
        };
        let authority = authorities.iter().find(is_signed_by).ok_or_else(|| {
            format!(
                "its list of {issuer} is not signed by an authority of client_ca: \
                 the certificate of the authority that issues both has to be there"
            )
        })?;
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
            authority: authority.clone(),
            issuer: list.issuer,
            issuer_name: list.issuer_name,
            serials: list.serials,
            since: list.since,
            until,
        })
    }
}

/// True if an authority (DER) has signed a certificate; `None` if that cannot be verified here (RSA-PSS).
pub(super) fn has_signed(authority: &[u8], certificate: &Certificate) -> Option<bool> {
    let key = PublicKey::from_certificate(authority).ok()?;
    let signed = certificate.tbs_certificate().to_der().ok()?;
    let named = certificate.signature_algorithm().to_der().ok()?;
    let signature = certificate.signature().as_bytes()?;
    mechanism_of(&named)?;
    Some(verifies(&key, &named, &signed, signature))
}

/// The mechanism of an algorithm (DER) that lists are signed by.
fn mechanism_of(named: &[u8]) -> Option<Mechanism> {
    let mechanisms = MECHANISMS.into_iter().map(Mechanism::plain);
    let is_named = |it: &Mechanism| algorithm(it).is_some_and(|it| it == named);
    mechanisms.into_iter().find(is_named)
}

/// Verifies a signature by an algorithm (DER) that lists are signed by.
fn verifies(key: &PublicKey, named: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    let Some(mechanism) = mechanism_of(named) else {
        return false;
    };
    let is_ecdsa = (ck::CKM_ECDSA_SHA256..=ck::CKM_ECDSA_SHA512).contains(&mechanism.kind);
    let raw = is_ecdsa.then(|| plain(signature, key.signature_len()));
    let signature = raw.unwrap_or_else(|| Some(signature.to_vec()));
    signature.is_some_and(|signature| key.verify(&mechanism, signed, &signature).is_ok())
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

/// The bytes of a file, if they are not too many.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.map_err(|e| e.to_string())?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("it is longer than {} MiB", LONGEST >> 20));
    }
    Ok(bytes)
}

/// The lists of a file, DER.
pub(super) fn blocks(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, String> {
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
