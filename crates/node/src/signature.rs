//! Verification of X.509 signatures.

use rustls::crypto::ring::default_provider;
use x509_cert::der::Encode;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

/// Verifies that the owner of a key has signed this; `Err` says why not.
pub fn verify(
    key: &SubjectPublicKeyInfoOwned,
    algorithm: &AlgorithmIdentifierOwned,
    signed: &[u8],
    signature: &[u8],
) -> Result<(), String> {
    let with = (inner(&key.algorithm), inner(algorithm));
    let known = default_provider().signature_verification_algorithms.all;
    let algorithm = known.iter().find(|known| {
        let ids = (known.public_key_alg_id(), known.signature_alg_id());
        (ids.0.as_ref(), ids.1.as_ref()) == (&*with.0, &*with.1)
    });
    let algorithm = algorithm.ok_or("it is signed in a way that is not known here")?;
    let key = key.subject_public_key.raw_bytes();
    let verified = algorithm.verify_signature(key, signed, signature);
    verified.map_err(|_| "its signature is not by its key".to_owned())
}

/// The content of an AlgorithmIdentifier, without its SEQUENCE.
fn inner(algorithm: &AlgorithmIdentifierOwned) -> Vec<u8> {
    let parameters = algorithm.parameters.as_ref();
    let parameters = parameters.map_or_else(|| Ok(Vec::new()), Encode::to_der);
    let mut bytes = algorithm.oid.to_der().unwrap_or_default();
    bytes.extend(parameters.unwrap_or_default());
    bytes
}
