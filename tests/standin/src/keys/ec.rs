//! EC P-256.

use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::ecdsa::{Signature, SigningKey};
use p256::elliptic_curve::ops::Reduce;
use p256::elliptic_curve::point::AffineCoordinates;
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{FieldBytes, ProjectivePoint, Scalar};
use sha2::{Digest, Sha256};

/// A key, with one nonce for fast signatures.
pub struct Ec {
    key: SigningKey,
    /// The private scalar.
    d: Scalar,
    /// The first half of every fast signature: the x coordinate of the nonce's point.
    r: Scalar,
    /// The nonce's inverse.
    k_inverse: Scalar,
}

impl Ec {
    pub(super) fn of(seed: u64) -> Self {
        let d = scalar("hsmux-standin P-256", seed);
        let k = scalar("hsmux-standin nonce", seed);
        let point = (ProjectivePoint::GENERATOR * k).to_affine();
        Self {
            key: SigningKey::from_bytes(&d.to_bytes()).expect("a hash is a scalar"),
            d,
            r: Scalar::reduce(&point.x()),
            k_inverse: k.invert().expect("a hash is not zero"),
        }
    }

    /// The public point, uncompressed: 65 bytes.
    pub fn point(&self) -> Vec<u8> {
        let point = self.key.verifying_key().as_affine().to_sec1_point(false);
        point.as_bytes().to_vec()
    }

    /// CKM_ECDSA: r and s, 64 bytes.
    pub fn sign(&self, digest: &[u8]) -> Option<Vec<u8>> {
        let signature: Signature = self.key.sign_prehash(digest).ok()?;
        Some(signature.to_bytes().to_vec())
    }

    /// The same with the one nonce: `s = k⁻¹ (z + r d)`. It verifies, but reveals the key.
    pub fn sign_fast(&self, digest: &[u8; 32]) -> Vec<u8> {
        let z = Scalar::reduce(&FieldBytes::from(*digest));
        let s = self.k_inverse * (z + self.r * self.d);
        [self.r.to_bytes(), s.to_bytes()].concat()
    }
}

fn scalar(domain: &str, seed: u64) -> Scalar {
    let hash = Sha256::new()
        .chain_update(domain)
        .chain_update(seed.to_be_bytes())
        .finalize();
    Scalar::reduce(&FieldBytes::from(<[u8; 32]>::from(hash)))
}
