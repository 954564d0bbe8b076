//! The device key encryption key, and keys wrapped with it.

use hsmux_smartcard::StatusWord;
use num_bigint::BigUint;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::crypto::ec::EcKey;
use crate::crypto::rsa::RsaKey;
use crate::crypto::{aes, curve, to_bytes};
use crate::cvc::{ECDSA_SHA256, RSA_SHA256};
use crate::key::CardKey;
use crate::state::{Content, KeyRecord};

/// A DKEK as the XOR of shares; some may still be missing.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DkekShares {
    total: u8,
    missing: u8,
    key: Content,
}

/// Length of the DKEK and of a share.
const LEN: usize = 32;
/// Length of the key check value.
const KCV: usize = 8;
/// id-aes (2.16.840.1.101.3.4.1).
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];

impl DkekShares {
    /// Waits for `total` shares. 0 means a random key that no other card has.
    pub fn new(total: u8) -> Self {
        let key = match total {
            0 => crate::crypto::random::<LEN>().to_vec(),
            _ => vec![0; LEN],
        };
        Self {
            total,
            missing: total,
            key: key.into(),
        }
    }

    /// Adds a share.
    pub fn import(&mut self, share: &[u8]) -> Result<(), StatusWord> {
        if share.len() != LEN {
            return Err(StatusWord::WRONG_LENGTH);
        }
        if self.missing == 0 {
            return Err(StatusWord::CONDITIONS_NOT_SATISFIED);
        }
        self.missing -= 1;
        let sum: Vec<u8> = self.key.iter().zip(share).map(|(a, b)| a ^ b).collect();
        self.key = sum.into();
        Ok(())
    }

    /// Total and missing shares, and the key check value (zeros while shares are missing).
    pub fn status(&self) -> Vec<u8> {
        let check = match self.complete() {
            Ok(key) => key.check_value(),
            Err(_) => [0; KCV],
        };
        [&[self.total, self.missing][..], &check].concat()
    }

    /// The key, if all shares are there.
    pub fn complete(&self) -> Result<CompleteDkek<'_>, StatusWord> {
        match self.missing {
            0 => Ok(CompleteDkek(&self.key)),
            _ => Err(StatusWord::CONDITIONS_NOT_SATISFIED),
        }
    }
}

/// A DKEK with all its shares.
pub struct CompleteDkek<'a>(&'a [u8]);

impl CompleteDkek<'_> {
    fn check_value(&self) -> [u8; KCV] {
        let digest = Sha256::digest(self.0);
        std::array::from_fn(|i| digest[i])
    }

    fn derived(&self, purpose: u32) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(purpose.to_be_bytes());
        hash.finalize().into()
    }

    /// Wraps the key in a blob for every card with this DKEK.
    pub fn wrap(&self, record: &KeyRecord) -> Option<Vec<u8>> {
        let (kind, oid, content) = content(&record.key);
        let mut plain = [&crate::crypto::random::<8>()[..], &content, &[0x80]].concat();
        plain.resize(plain.len().next_multiple_of(aes::BLOCK), 0);

        let mut blob = self.check_value().to_vec();
        blob.push(kind);
        // Key type, allowed algorithms, access conditions, key OID.
        for field in [oid, &record.algorithms, &[], &[]] {
            put(&mut blob, field);
        }
        blob.extend(aes::encrypt(&self.derived(1), &plain)?);
        blob.extend(aes::mac(&self.derived(2), &blob)?);
        Some(blob)
    }

    /// Unwraps a key; `None` if the blob has another DKEK, is damaged, or has no key.
    pub fn unwrap(&self, blob: &[u8]) -> Option<KeyRecord> {
        let (blob, mac) = blob.split_at_checked(blob.len().checked_sub(aes::BLOCK)?)?;
        let own = blob.starts_with(&self.check_value());
        if !own || aes::mac(&self.derived(2), blob)? != mac {
            return None;
        }
        let (&kind, mut rest) = blob[KCV..].split_first()?;
        let oid = take(&mut rest)?;
        let algorithms = take(&mut rest)?;
        let (_conditions, _key_oid) = (take(&mut rest)?, take(&mut rest)?);
        let plain = aes::decrypt(&self.derived(1), rest)?;
        let key = parse(kind, oid, plain.get(8..)?)?;
        Some(KeyRecord {
            algorithms: algorithms.into(),
            ..KeyRecord::new(key)
        })
    }
}

const RSA_KEY: u8 = 5;
const RSA_CRT_KEY: u8 = 6;
const EC_KEY: u8 = 12;
const AES_KEY: u8 = 15;

/// Type, OID and plaintext: the size in bits and the fields.
fn content(key: &CardKey) -> (u8, &'static [u8], Vec<u8>) {
    match key {
        CardKey::Rsa(key) => {
            let [d, n] = [&key.d, &key.n].map(|number| to_bytes(number, key.len()));
            let fields = sized(key.bits(), &[&d, &n, &key.e.to_bytes_be()]);
            (RSA_KEY, RSA_SHA256, fields)
        }
        CardKey::Ec(key) => {
            let [prime, a, b, generator, order] = key.curve.parameters();
            let d = to_bytes(&key.d, key.curve.len);
            let fields = sized(
                key.curve.len * 8,
                &[a, b, prime, order, generator, &d, &key.q],
            );
            (EC_KEY, ECDSA_SHA256, fields)
        }
        CardKey::Aes(key) => {
            // The only kind without a size in bits: its length gives it.
            let mut field = Vec::new();
            put(&mut field, key);
            (AES_KEY, AES, field)
        }
    }
}

fn sized(bits: usize, fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = (bits as u16).to_be_bytes().to_vec();
    for field in fields {
        put(&mut bytes, field);
    }
    bytes
}

fn parse(kind: u8, oid: &[u8], plain: &[u8]) -> Option<CardKey> {
    let (_bits, mut rest) = plain.split_at_checked(if kind == AES_KEY { 0 } else { 2 })?;
    let number = |bytes: &[u8]| BigUint::from_bytes_be(bytes);
    let mut field = || take(&mut rest);
    Some(match (kind, oid) {
        (RSA_KEY, RSA_SHA256) => {
            let (d, n, e) = (number(field()?), number(field()?), number(field()?));
            CardKey::Rsa(RsaKey::from_exponents(&n, &e, &d)?)
        }
        (RSA_CRT_KEY, RSA_SHA256) => {
            let (_dp, _dq, p) = (field()?, field()?, number(field()?));
            let (_q_inverse, q, _n) = (field()?, number(field()?), field()?);
            CardKey::Rsa(RsaKey::from_primes(p, q, number(field()?))?)
        }
        (EC_KEY, ECDSA_SHA256) => {
            // One emulator leaves A empty.
            let (a, b, p) = (field()?, field()?, field()?);
            let (_n, _g, d) = (field()?, field()?, field()?);
            CardKey::Ec(EcKey::new(curve::with(p, a, b)?, number(d))?)
        }
        (AES_KEY, AES) => {
            let key = field()?;
            [16, 24, 32]
                .contains(&key.len())
                .then(|| CardKey::Aes(key.to_vec()))?
        }
        _ => return None,
    })
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend((field.len() as u16).to_be_bytes());
    bytes.extend_from_slice(field);
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (field, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    *bytes = rest;
    Some(field)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dkek(shares: &DkekShares) -> CompleteDkek<'_> {
        shares.complete().map_err(|_| "shares are missing").unwrap()
    }

    /// A blob of this kind and these parts, which requires the DKEK.
    fn blob(dkek: &CompleteDkek, header: &[u8], plain: &[u8]) -> Vec<u8> {
        let secret = aes::encrypt(&dkek.derived(1), plain).unwrap();
        let blob = [&dkek.check_value(), header, &secret].concat();
        let mac = aes::mac(&dkek.derived(2), &blob).unwrap();
        [blob, mac].concat()
    }

    #[test]
    fn keys_with_their_chinese_remainders_are_taken() {
        let shares = DkekShares::new(0);
        let dkek = dkek(&shares);
        let key = RsaKey::generate(1024, &65_537u32.into()).unwrap();
        // dp, dq and q's inverse are computed again.
        let [p, q, n] = [&key.p, &key.q, &key.n].map(BigUint::to_bytes_be);
        let fields = sized(1024, &[&[1], &[1], &p, &[1], &q, &n, &key.e.to_bytes_be()]);
        let mut plain = [&[0; 8][..], &fields, &[0x80]].concat();
        plain.resize(plain.len().next_multiple_of(aes::BLOCK), 0);
        let mut header = vec![RSA_CRT_KEY];
        for field in [RSA_SHA256, &[], &[], &[]] {
            put(&mut header, field);
        }
        let taken = dkek.unwrap(&blob(&dkek, &header, &plain)).unwrap();
        let CardKey::Rsa(taken) = &*taken.key else {
            panic!("not RSA")
        };
        assert_eq!((&taken.n, &taken.d), (&key.n, &key.d));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_blob_with_nonsense_inside_is_refused(
            kind in prop_oneof![Just(RSA_KEY), Just(RSA_CRT_KEY), Just(EC_KEY), any::<u8>()],
            plain in prop::collection::vec(any::<u8>(), 0..10),
            rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let shares = DkekShares::new(0);
            let dkek = dkek(&shares);
            let oid = if kind == EC_KEY { ECDSA_SHA256 } else { RSA_SHA256 };
            let mut header = vec![kind];
            for field in [oid, &[], &[], &[]] {
                put(&mut header, field);
            }
            let plain = plain.repeat(aes::BLOCK);
            prop_assert!(dkek.unwrap(&blob(&dkek, &header, &plain)).is_none());
            prop_assert!(dkek.unwrap(&blob(&dkek, &rest, &[])).is_none());
        }
    }
}
