//! Public keys of certificates: from a key in a token, or from a host's request.

use rcgen::{
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData,
    SignatureAlgorithm,
};
use x509_cert::der::{Decode, DecodePem, Encode};
use x509_cert::request::CertReq;
use x509_cert::spki::SubjectPublicKeyInfoRef;

use crate::signature;

/// The algorithms that hosts verify.
const ALGORITHMS: [&SignatureAlgorithm; 4] = [
    &PKCS_ECDSA_P256_SHA256,
    &PKCS_ECDSA_P384_SHA384,
    &PKCS_RSA_SHA256,
    &PKCS_ED25519,
];

/// A public key that hosts can verify with.
pub struct PublicHalf {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl PublicHalf {
    /// Reads a SubjectPublicKeyInfo (DER).
    pub fn of(spki: &[u8]) -> Result<Self, String> {
        let read = SubjectPublicKeyInfoRef::from_der(spki).map_err(|e| format!("a key: {e}"))?;
        let bits = read.subject_public_key.raw_bytes();
        let halves = ALGORITHMS.iter().map(|algorithm| Self {
            bits: bits.to_vec(),
            algorithm,
        });
        let mut fitting = halves.filter(|half| half.subject_public_key_info() == spki);
        let half = fitting.next();
        half.ok_or_else(|| "the key is none of P-256, P-384, RSA and Ed25519".to_owned())
    }

    /// The key of a certificate request (PKCS#10, PEM), if its owner has signed the request for this name. All other
    /// content is ignored.
    pub fn requested(request: &str, name: &str) -> Result<Self, String> {
        let read = CertReq::from_pem(request).map_err(|e| e.to_string())?;
        let common = read.info.subject.common_name();
        let common = common.map_err(|e| e.to_string())?;
        let of = common.map_or_else(String::new, |common| common.value().into_owned());
        if !of.eq_ignore_ascii_case(name) {
            return Err(format!("it is of {of:?}, and not of {name:?}"));
        }
        let spki = read.info.public_key.to_der().map_err(|e| e.to_string())?;
        let half = Self::of(&spki)?;
        let signed = read.info.to_der().map_err(|e| e.to_string())?;
        let signature = read.signature.raw_bytes();
        signature::verify(&read.info.public_key, &read.algorithm, &signed, signature)?;
        Ok(half)
    }
}

impl PublicKeyData for PublicHalf {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}
