use hsmux_software::PublicKey;
use hsmux_token::{Mechanism, Params, Pss, ck};

use super::CvcError;

/// id-TA-RSA and id-TA-ECDSA, without their last number (TR-03110-3, appendix A.7.3).
const RSA: [u8; 9] = [4, 0, 127, 0, 7, 2, 2, 2, 1];
const ECDSA: [u8; 9] = [4, 0, 127, 0, 7, 2, 2, 2, 2];

/// Checks a signature by what the signer's certificate names as its algorithm. ECDSA signatures are r and s,
/// plain (TR-03111, section 5.2.1).
pub fn verify(
    key: &PublicKey,
    algorithm: &[u8],
    data: &[u8],
    signature: &[u8],
) -> Result<(), CvcError> {
    let mechanism =
        mechanism(algorithm).ok_or_else(|| CvcError::Algorithm(hex::encode(algorithm)))?;
    Ok(key.verify(&mechanism, data, signature)?)
}

fn mechanism(algorithm: &[u8]) -> Option<Mechanism> {
    let (last, family) = algorithm.split_last()?;
    let pss = |hash, mgf, salt| Params::Pss(Pss { hash, mgf, salt });
    let (kind, params) = match (family == RSA, family == ECDSA, last) {
        (true, _, 1) => (ck::CKM_SHA1_RSA_PKCS, Params::None),
        (true, _, 2) => (ck::CKM_SHA256_RSA_PKCS, Params::None),
        (true, _, 3) => (
            ck::CKM_SHA1_RSA_PKCS_PSS,
            pss(ck::CKM_SHA_1, ck::CKG_MGF1_SHA1, 20),
        ),
        (true, _, 4) => (
            ck::CKM_SHA256_RSA_PKCS_PSS,
            pss(ck::CKM_SHA256, ck::CKG_MGF1_SHA256, 32),
        ),
        (true, _, 5) => (ck::CKM_SHA512_RSA_PKCS, Params::None),
        (true, _, 6) => (
            ck::CKM_SHA512_RSA_PKCS_PSS,
            pss(ck::CKM_SHA512, ck::CKG_MGF1_SHA512, 64),
        ),
        (_, true, 1) => (ck::CKM_ECDSA_SHA1, Params::None),
        (_, true, 2) => (ck::CKM_ECDSA_SHA224, Params::None),
        (_, true, 3) => (ck::CKM_ECDSA_SHA256, Params::None),
        (_, true, 4) => (ck::CKM_ECDSA_SHA384, Params::None),
        (_, true, 5) => (ck::CKM_ECDSA_SHA512, Params::None),
        _ => return None,
    };
    Some(Mechanism { kind, params })
}
