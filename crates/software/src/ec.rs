//! ECDSA on the curves whose arithmetic there is (FIPS 186-5, section 6.4.2).

use ecdsa::elliptic_curve::array::typenum::Unsigned;
use ecdsa::elliptic_curve::group::Curve;
use ecdsa::elliptic_curve::sec1::{FromSec1Point, ModulusSize, ToSec1Point};
use ecdsa::elliptic_curve::{AffinePoint, CurveArithmetic, FieldBytesSize, PublicKey, SecretKey};
use ecdsa::{EcdsaCurve, Signature, hazmat};
use hsmux_token::{Error, Kind, Mechanism, Result, ck};

use crate::curve::{Agreement, DecodedPoint, SignatureVerifier};

/// A point on the curve `C`, with its canonical (uncompressed) encoding.
pub fn decode<C>(point: &[u8]) -> Option<DecodedPoint>
where
    C: EcdsaCurve + CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    let key = PublicKey::<C>::from_sec1_bytes(point).ok()?;
    Some(DecodedPoint {
        canonical: key.as_affine().to_sec1_point(false).as_bytes().to_vec(),
        verifier: Box::new(Ecdsa(key)),
    })
}

struct Ecdsa<C: CurveArithmetic>(PublicKey<C>);

impl<C> SignatureVerifier for Ecdsa<C>
where
    C: EcdsaCurve + CurveArithmetic,
    AffinePoint<C>: FromSec1Point<C> + ToSec1Point<C>,
    FieldBytesSize<C>: ModulusSize,
{
    /// CKM_ECDSA: `data` is a digest of any length, the signature r and s of equal length (PKCS#11
    /// 3.0, section 2.3.1). A token may leave out zeros that both begin with.
    fn verify(&self, mechanism: &Mechanism, data: &[u8], signature: &[u8]) -> Result<()> {
        if mechanism.kind != ck::CKM_ECDSA {
            return Err(Error::vendor("C_Verify", ck::CKR_KEY_TYPE_INCONSISTENT));
        }
        let half = signature.len() / 2;
        if signature.is_empty()
            || !signature.len().is_multiple_of(2)
            || half > self.signature_len() / 2
        {
            return Err(Error::vendor("C_Verify", ck::CKR_SIGNATURE_LEN_RANGE));
        }
        let mut full = vec![0; self.signature_len()];
        let (r, s) = full.split_at_mut(self.signature_len() / 2);
        for (wide, narrow) in [(r, &signature[..half]), (s, &signature[half..])] {
            let pad = wide.len() - half;
            wide[pad..].copy_from_slice(narrow);
        }
        Signature::<C>::from_slice(&full)
            // secp256k1's arithmetic takes the low one of the two values of s; a token may give either.
            .map(|signature| {
                if C::NORMALIZE_S {
                    signature.normalize_s()
                } else {
                    signature
                }
            })
            .and_then(|signature| {
                hazmat::verify_prehashed(&self.0.to_projective(), data, &signature)
            })
            .map_err(|_| Error::vendor("C_Verify", ck::CKR_SIGNATURE_INVALID))
    }

    fn signature_len(&self) -> usize {
        2 * FieldBytesSize::<C>::USIZE
    }

    fn agree(&self, random: &[u8]) -> Result<Agreement> {
        let len = FieldBytesSize::<C>::USIZE;
        let mut scalar = random.get(..len).unwrap_or_default().to_vec();
        // Below the order of every curve, P-521 included.
        if let Some(first) = scalar.first_mut() {
            *first = 0;
        }
        let ephemeral = SecretKey::<C>::from_slice(&scalar)
            .map_err(|_| Error::request(Kind::Invalid, "too few random bytes for a key"))?;
        let own = ephemeral.public_key().as_affine().to_sec1_point(false);
        let shared = self.0.to_projective() * *ephemeral.to_nonzero_scalar();
        let shared = shared.to_affine().to_sec1_point(false);
        Ok(Agreement {
            public: own.as_bytes().to_vec(),
            // 04, x, y: the secret is x.
            secret: shared.as_bytes()[1..=len].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use p256::SecretKey;
    use p256::elliptic_curve::sec1::ToSec1Point;

    use super::decode;

    #[test]
    fn both_sides_agree_on_the_same_secret() {
        let own = SecretKey::from_slice(&[7; 32]).unwrap();
        let public = own.public_key().to_sec1_point(false);
        let decoded = decode::<p256::NistP256>(public.as_bytes()).unwrap();
        let agreement = decoded.verifier.agree(&[9; 32]).unwrap();
        let theirs = p256::PublicKey::from_sec1_bytes(&agreement.public).unwrap();
        let shared = theirs.to_projective() * *own.to_nonzero_scalar();
        let shared = shared.to_affine().to_sec1_point(false);
        assert_eq!(shared.as_bytes()[1..33], agreement.secret);
        assert!(decoded.verifier.agree(&[9; 8]).is_err());
    }
}
