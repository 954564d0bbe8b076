//! Signatures of JSON Web Tokens (RFC 7518, section 3), verified by the code that verifies tokens' signatures.

use hsmux_software::PublicKey;
use hsmux_token::{Attributes, Hash, Mechanism, Params, Pss, ck};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::signature;
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};

/// The algorithms with a public key. The broker never accepts others (`none`, HS256).
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// RFC 7518, sections 3.3 and 3.5.
const LEAST_RSA_BITS: usize = 2048;

/// OIDs of curves, DER.
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// Makes `jsonwebtoken` verify through this file; further calls do nothing.
pub fn install() {
    static HERE: CryptoProvider = CryptoProvider {
        signer_factory: nothing_is_signed,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    let _ = HERE.install_default();
}

/// True for one half of a key pair, false for a secret key.
pub fn is_public(jwk: &Jwk) -> bool {
    !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_))
}

struct JwsVerifier {
    algorithm: Algorithm,
    mechanism: Mechanism,
    key: PublicKey,
}

impl JwtVerifier for JwsVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl signature::Verifier<Vec<u8>> for JwsVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> signature::Result<()> {
        let verified = self.key.verify(&self.mechanism, message, signature);
        verified.map_err(|_| signature::Error::new())
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the type of CryptoProvider's field"
)]
fn nothing_is_signed(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the type of CryptoProvider's field"
)]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let mechanism = mechanism(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
    let key = public_key(*algorithm, key).ok_or(ErrorKind::InvalidKeyFormat)?;
    Ok(Box::new(JwsVerifier {
        algorithm: *algorithm,
        mechanism,
        key,
    }))
}

fn mechanism(algorithm: Algorithm) -> Option<Mechanism> {
    let pss = |kind, hash: Hash| Mechanism {
        kind,
        params: Params::Pss(Pss {
            hash: hash.mechanism(),
            mgf: hash.mgf(),
            salt: hash.len() as u64,
        }),
    };
    Some(match algorithm {
        Algorithm::RS256 => Mechanism::plain(ck::CKM_SHA256_RSA_PKCS),
        Algorithm::RS384 => Mechanism::plain(ck::CKM_SHA384_RSA_PKCS),
        Algorithm::RS512 => Mechanism::plain(ck::CKM_SHA512_RSA_PKCS),
        Algorithm::PS256 => pss(ck::CKM_SHA256_RSA_PKCS_PSS, Hash::Sha256),
        Algorithm::PS384 => pss(ck::CKM_SHA384_RSA_PKCS_PSS, Hash::Sha384),
        Algorithm::PS512 => pss(ck::CKM_SHA512_RSA_PKCS_PSS, Hash::Sha512),
        Algorithm::ES256 => Mechanism::plain(ck::CKM_ECDSA_SHA256),
        Algorithm::ES384 => Mechanism::plain(ck::CKM_ECDSA_SHA384),
        Algorithm::EdDSA => Mechanism::plain(ck::CKM_EDDSA),
        _ => return None,
    })
}

/// The key, if it fits the algorithm.
fn public_key(algorithm: Algorithm, key: &DecodingKey) -> Option<PublicKey> {
    let of = |key_type| Attributes::default().with_number(ck::CKA_KEY_TYPE, key_type);
    let on_curve = |key_type, curve: &[u8], point: &[u8]| {
        let attributes = of(key_type).with(ck::CKA_EC_PARAMS, curve.to_vec());
        attributes.with(ck::CKA_EC_POINT, point.to_vec())
    };
    let rsa = matches!(key.kind(), DecodingKeyKind::RsaModulusExponent { .. });
    let attributes = match (algorithm, key.kind()) {
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
            on_curve(ck::CKK_EC, P256, point)
        }
        (Algorithm::ES384, DecodingKeyKind::SecretOrDer(point)) => {
            on_curve(ck::CKK_EC, P384, point)
        }
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
            on_curve(ck::CKK_EC_EDWARDS, ED25519, point)
        }
        (_, DecodingKeyKind::RsaModulusExponent { n, e }) => of(ck::CKK_RSA)
            .with(ck::CKA_MODULUS, n.clone())
            .with(ck::CKA_PUBLIC_EXPONENT, e.clone()),
        _ => return None,
    };
    let key = PublicKey::from_attributes(&attributes).ok()?;
    (!rsa || key.bits() >= LEAST_RSA_BITS).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rsa_key_has_2048_bits_at_least() {
        let is_taken = |first: u8| {
            let mut modulus = [0xff; 256];
            modulus[0] = first;
            let key = DecodingKey::from_rsa_raw_components(&modulus, &[1, 0, 1]);
            public_key(Algorithm::RS256, &key).is_some()
        };
        assert!(is_taken(0x80), "2,048 bits");
        assert!(!is_taken(0x7f), "2,047 bits");
    }
}
