//! Ed25519 (RFC 8032), pure and prehashed.

use digest::Digest;
use ed25519_dalek::{Signature, VerifyingKey};
use hsmux_token::{Error, Kind, Mechanism, Params, Result, ck};

use crate::curve::{DecodedPoint, SignatureVerifier};

/// A point in its 32 bytes.
pub fn decode(point: &[u8]) -> Option<DecodedPoint> {
    let key = VerifyingKey::from_bytes(point.try_into().ok()?).ok()?;
    Some(DecodedPoint {
        canonical: point.to_vec(),
        verifier: Box::new(Ed25519(key)),
    })
}

struct Ed25519(VerifyingKey);

impl SignatureVerifier for Ed25519 {
    fn verify(&self, mechanism: &Mechanism, data: &[u8], signature: &[u8]) -> Result<()> {
        if mechanism.kind != ck::CKM_EDDSA {
            return Err(Error::vendor("C_Verify", ck::CKR_KEY_TYPE_INCONSISTENT));
        }
        let signature = Signature::from_slice(signature)
            .map_err(|_| Error::vendor("C_Verify", ck::CKR_SIGNATURE_LEN_RANGE))?;
        let verified = match &mechanism.params {
            Params::None => self.0.verify_strict(data, &signature),
            Params::Eddsa {
                prehash: true,
                context,
            } => {
                let hashed = sha2::Sha512::new_with_prefix(data);
                self.0
                    .verify_prehashed_strict(hashed, Some(context), &signature)
            }
            Params::Eddsa { context, .. } if context.is_empty() => {
                self.0.verify_strict(data, &signature)
            }
            Params::Eddsa { .. } => {
                return Err(Error::request(
                    Kind::Unsupported,
                    "C_Verify: Ed25519ctx (a context without prehash) is not offered; verify it elsewhere",
                ));
            }
            _ => return Err(Error::vendor("C_Verify", ck::CKR_MECHANISM_PARAM_INVALID)),
        };
        verified.map_err(|_| Error::vendor("C_Verify", ck::CKR_SIGNATURE_INVALID))
    }

    fn signature_len(&self) -> usize {
        Signature::BYTE_SIZE
    }
}
