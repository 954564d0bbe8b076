//! A mechanism's parameter, as far as Init can judge it: what no token takes is refused before any data.

use hsmux_token::ck::*;
use hsmux_token::{Gcm, Hash, Mechanism, Oaep, Params, Pss};

use crate::rv::{Result, Rv};

/// Checks the parameter. `size` is that of an RSA modulus, in bytes, where it is known. `on_token` says that a
/// member uses the key, and not this process.
///
/// [`CKR_MECHANISM_PARAM_INVALID`] otherwise.
pub fn check(mechanism: &Mechanism, size: Option<usize>, on_token: bool) -> Result {
    let good = match &mechanism.params {
        Params::Ctr { bits, .. } => (1..=128).contains(bits),
        Params::Pss(pss) => is_pss(pss, mechanism, size),
        Params::Oaep(oaep) => is_oaep(oaep),
        Params::Gcm(gcm) => is_gcm(gcm),
        // A MAC is as long as a block of AES at most.
        Params::Number(len) => (1..=16).contains(len),
        // Tokens of today sign without looking at it (RFC 8032, section 5.1: another signature).
        Params::Eddsa { prehash, context } if on_token => !prehash && context.is_empty(),
        Params::Eddsa { context, .. } => context.len() <= 255,
        _ => true,
    };
    if good {
        Ok(())
    } else {
        Err(Rv(CKR_MECHANISM_PARAM_INVALID))
    }
}

/// OAEP without a parameter: which hash that means, the module of the key's member decides. sc-hsm-embedded takes
/// SHA-256 for it, and SoftHSM refuses it.
pub fn are_a_default(mechanism: &Mechanism) -> bool {
    mechanism.kind == CKM_RSA_PKCS_OAEP && mechanism.params == Params::None
}

/// RFC 8017, section 9.1.1: hash, salt and two bytes fit into the encoded message.
fn is_pss(pss: &Pss, mechanism: &Mechanism, size: Option<usize>) -> bool {
    let Some(hash) = Hash::of(pss.hash) else {
        return false;
    };
    let entry = hsmux_token::entry(mechanism.kind);
    let own = entry.and_then(|entry| entry.prehash);
    let room = size.map_or(u64::MAX, |size| size as u64);
    own.is_none_or(|own| own.hash == hash)
        && Hash::of_mgf(pss.mgf).is_some()
        && pss.salt.saturating_add(hash.len() as u64 + 2) <= room
}

fn is_oaep(oaep: &Oaep) -> bool {
    Hash::of(oaep.hash).is_some() && Hash::of_mgf(oaep.mgf).is_some()
}

/// NIST SP 800-38D, section 5.2.1.2; PKCS#11 has IVs of at most 256 bytes.
fn is_gcm(gcm: &Gcm) -> bool {
    const TAGS: [u64; 7] = [32, 64, 96, 104, 112, 120, 128];
    TAGS.contains(&gcm.tag_bits) && (1..=256).contains(&gcm.iv.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(kind: u64, params: Params) -> bool {
        let mechanism = Mechanism { kind, params };
        match check(&mechanism, Some(256), true) {
            Ok(()) => true,
            Err(rv) => {
                assert_eq!(rv, Rv(CKR_MECHANISM_PARAM_INVALID));
                false
            }
        }
    }

    fn pss(hash: u64, mgf: u64, salt: u64) -> Params {
        Params::Pss(Pss { hash, mgf, salt })
    }

    #[test]
    fn pss_has_a_hash_of_its_own_and_room_for_its_salt() {
        let good = |kind, params| is_good(kind, params);
        let (own, hashed) = (CKM_RSA_PKCS_PSS, CKM_SHA256_RSA_PKCS_PSS);
        for salt in [0, 32, 222] {
            assert!(good(own, pss(CKM_SHA256, CKG_MGF1_SHA256, salt)), "{salt}");
        }
        assert!(good(own, pss(CKM_SHA512, CKG_MGF1_SHA1, 64)));
        assert!(good(hashed, pss(CKM_SHA256, CKG_MGF1_SHA256, 32)));
        assert!(!good(hashed, pss(CKM_SHA384, CKG_MGF1_SHA384, 32)));
        assert!(!good(own, pss(CKM_SHA256, CKG_MGF1_SHA256, 223)));
        assert!(!good(own, pss(CKM_SHA256, CKG_MGF1_SHA256, u64::MAX)));
        assert!(!good(own, pss(CKM_AES_ECB, CKG_MGF1_SHA256, 32)));
        assert!(!good(own, pss(CKM_SHA256, 0, 32)));
    }

    #[test]
    fn oaep_has_a_hash_and_a_mask() {
        let oaep = |hash, mgf| {
            let label = b"label".to_vec().into();
            is_good(CKM_RSA_PKCS_OAEP, Params::Oaep(Oaep { hash, mgf, label }))
        };
        assert!(oaep(CKM_SHA_1, CKG_MGF1_SHA1) && oaep(CKM_SHA256, CKG_MGF1_SHA256));
        assert!(!oaep(CKM_RSA_PKCS, CKG_MGF1_SHA1) && !oaep(CKM_SHA256, 77));
    }

    #[test]
    fn gcm_ctr_and_macs_have_the_lengths_that_there_are() {
        let gcm = |iv: usize, tag_bits| {
            let (iv, aad) = (vec![1; iv].into(), Vec::new().into());
            is_good(CKM_AES_GCM, Params::Gcm(Gcm { iv, aad, tag_bits }))
        };
        assert!(gcm(12, 128) && gcm(1, 32) && gcm(256, 96));
        assert!(!gcm(0, 128) && !gcm(257, 128) && !gcm(12, 0) && !gcm(12, 127) && !gcm(12, 136));
        let mac = |len| is_good(CKM_AES_CMAC_GENERAL, Params::Number(len));
        assert!(mac(1) && mac(16) && !mac(0) && !mac(17));
        let ctr = |bits| {
            let block = vec![0; 16].into();
            is_good(CKM_AES_CTR, Params::Ctr { bits, block })
        };
        assert!(ctr(1) && ctr(128) && !ctr(0) && !ctr(129));
    }

    #[test]
    fn members_sign_plain_eddsa_and_this_process_verifies_all_of_it() {
        let eddsa = |prehash, context: &[u8], on_token| {
            let context = context.to_vec().into();
            let params = Params::Eddsa { prehash, context };
            let mechanism = Mechanism {
                kind: CKM_EDDSA,
                params,
            };
            check(&mechanism, None, on_token).is_ok()
        };
        assert!(eddsa(false, b"", true));
        assert!(!eddsa(true, b"", true) && !eddsa(false, b"a", true));
        assert!(eddsa(true, b"a", false) && !eddsa(false, &[0; 256], false));
    }
}
