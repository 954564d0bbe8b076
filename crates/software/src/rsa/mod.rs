//! RSA with public values: verify, recover, encrypt (RFC 8017).

mod oaep;
mod pkcs1v15;
mod pss;

use hsmux_token::{Error, Hash, Kind, Mechanism, Params, Pss, Result, ck};
use num_bigint::BigUint;

/// An RSA public key.
pub struct RsaKey {
    n: BigUint,
    e: BigUint,
}

impl RsaKey {
    /// From CKA_MODULUS and CKA_PUBLIC_EXPONENT, big-endian.
    pub fn new(modulus: &[u8], exponent: &[u8]) -> Result<Self> {
        let n = BigUint::from_bytes_be(modulus);
        let e = BigUint::from_bytes_be(exponent);
        // The upper bounds keep a hostile key from costing minutes.
        let sane = (512..=16384).contains(&n.bits())
            && n.bit(0)
            && e.bit(0)
            && (2..=256).contains(&e.bits());
        if !sane {
            return Err(Error::request(
                Kind::Invalid,
                format!(
                    "not an RSA public key: modulus of {} bits, exponent of {} bits",
                    n.bits(),
                    e.bits()
                ),
            ));
        }
        Ok(Self { n, e })
    }

    /// CKA_MODULUS, without leading zeros.
    pub fn modulus(&self) -> Vec<u8> {
        self.n.to_bytes_be()
    }

    /// CKA_PUBLIC_EXPONENT, without leading zeros.
    pub fn exponent(&self) -> Vec<u8> {
        self.e.to_bytes_be()
    }

    /// Size of the modulus.
    pub fn bits(&self) -> usize {
        self.n.bits() as usize
    }

    /// Length of a signature and of a cipher text: that of the modulus in bytes.
    pub fn len(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Checks a signature of a mechanism that does not hash.
    pub fn verify(&self, mechanism: &Mechanism, data: &[u8], signature: &[u8]) -> Result<()> {
        const CALL: &str = "C_Verify";
        let message = self.open(CALL, signature)?;
        let genuine = match (mechanism.kind, &mechanism.params) {
            // Encoded anew and compared whole: nothing is parsed, so nothing can be parsed too kindly.
            (ck::CKM_RSA_PKCS, _) => message == pkcs1v15::signature_block(CALL, data, self.len())?,
            (ck::CKM_RSA_X_509, _) => message == self.widened(CALL, data)?,
            (ck::CKM_RSA_PKCS_PSS, Params::Pss(params)) => {
                pss::verify(params, data, &message, self.bits() - 1)?
            }
            _ => return Err(refused(CALL, mechanism)),
        };
        genuine
            .then_some(())
            .ok_or_else(|| Error::vendor(CALL, ck::CKR_SIGNATURE_INVALID))
    }

    /// The bytes of salt in a signature of CKM_RSA_PKCS_PSS, whatever the parameter says of them; `None` where it has
    /// no such form.
    pub fn salt(&self, params: &Pss, signature: &[u8]) -> Result<Option<u64>> {
        let message = self.open("C_Verify", signature)?;
        pss::salt(params, &message, self.bits() - 1)
    }

    /// The data that a signature was made of.
    pub fn verify_recover(&self, mechanism: &Mechanism, signature: &[u8]) -> Result<Vec<u8>> {
        const CALL: &str = "C_VerifyRecover";
        let message = self.open(CALL, signature)?;
        match mechanism.kind {
            ck::CKM_RSA_X_509 => Ok(message),
            ck::CKM_RSA_PKCS => pkcs1v15::signed_data(&message)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| Error::vendor(CALL, ck::CKR_SIGNATURE_INVALID)),
            _ => Err(refused(CALL, mechanism)),
        }
    }

    /// Enciphers, with fresh padding where the mechanism has some.
    pub fn encrypt(&self, mechanism: &Mechanism, data: &[u8]) -> Result<Vec<u8>> {
        const CALL: &str = "C_Encrypt";
        let block = match (mechanism.kind, &mechanism.params) {
            (ck::CKM_RSA_PKCS, _) => pkcs1v15::encryption_block(CALL, data, self.len())?,
            (ck::CKM_RSA_X_509, _) => self.widened(CALL, data)?,
            (ck::CKM_RSA_PKCS_OAEP, Params::Oaep(params)) => {
                oaep::encode(CALL, params, data, self.len())?
            }
            _ => return Err(refused(CALL, mechanism)),
        };
        self.apply(&block)
            .ok_or_else(|| Error::vendor(CALL, ck::CKR_DATA_INVALID))
    }

    /// The encoded message of a signature.
    fn open(&self, call: &str, signature: &[u8]) -> Result<Vec<u8>> {
        if signature.len() != self.len() {
            return Err(Error::vendor(call, ck::CKR_SIGNATURE_LEN_RANGE));
        }
        self.apply(signature)
            .ok_or_else(|| Error::vendor(call, ck::CKR_SIGNATURE_INVALID))
    }

    /// The public operation; `None` for a number that is not below the modulus.
    fn apply(&self, block: &[u8]) -> Option<Vec<u8>> {
        let number = BigUint::from_bytes_be(block);
        if number >= self.n {
            return None;
        }
        let bytes = number.modpow(&self.e, &self.n).to_bytes_be();
        let mut block = vec![0; self.len() - bytes.len()];
        block.extend(bytes);
        Some(block)
    }

    /// CKM_RSA_X_509 takes shorter data as a number: zeros in front (PKCS#11 3.0, section 2.1.8).
    fn widened(&self, call: &str, data: &[u8]) -> Result<Vec<u8>> {
        let zeros = self
            .len()
            .checked_sub(data.len())
            .ok_or_else(|| Error::vendor(call, ck::CKR_DATA_LEN_RANGE))?;
        let mut block = vec![0; zeros];
        block.extend(data);
        Ok(block)
    }
}

/// The mechanism is not RSA's, or its parameter is not the mechanism's.
fn refused(call: &str, mechanism: &Mechanism) -> Error {
    match mechanism.kind {
        ck::CKM_RSA_PKCS_PSS | ck::CKM_RSA_PKCS_OAEP => {
            Error::vendor(call, ck::CKR_MECHANISM_PARAM_INVALID)
        }
        _ => Error::vendor(call, ck::CKR_KEY_TYPE_INCONSISTENT),
    }
}

/// The two hashes of PSS and OAEP, by `CKM_*` and `CKG_*`.
fn hashes(call: &str, hash: u64, mgf: u64) -> Result<(Hash, Hash)> {
    Hash::of(hash)
        .zip(Hash::of_mgf(mgf))
        .ok_or_else(|| Error::vendor(call, ck::CKR_MECHANISM_PARAM_INVALID))
}

/// Masks `target` by MGF1 over `seed` (RFC 8017, appendix B.2.1).
fn mask(hash: Hash, seed: &[u8], target: &mut [u8]) {
    for (counter, part) in (0_u32..).zip(target.chunks_mut(hash.len())) {
        let mut hasher = crate::Hasher::new(hash);
        hasher.update(seed);
        hasher.update(&counter.to_be_bytes());
        part.iter_mut()
            .zip(hasher.finish())
            .for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// Random bytes, for a padding or an ephemeral key.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::request(
            Kind::Environment,
            format!("the system gave no random bytes: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modulus_has_512_to_16384_bits_and_an_exponent_256_at_most() {
        let is_taken = |modulus: usize, exponent: usize| {
            let number = |bytes: usize| vec![0xff_u8; bytes];
            RsaKey::new(&number(modulus), &number(exponent)).is_ok()
        };
        assert!(is_taken(64, 3) && is_taken(2048, 32));
        assert!(!is_taken(63, 3) && !is_taken(2049, 3));
        assert!(!is_taken(256, 33));
    }
}
