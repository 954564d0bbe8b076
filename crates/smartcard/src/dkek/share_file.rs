//! Share files of sc-hsm-tool (`.pbe`): a share under a password.
//!
//! `"Salted__"`, 8 bytes of salt, then AES-256-CBC of the share with PKCS#7 padding. Key and IV come from
//! the password as OpenSSL's `EVP_BytesToKey` does it, with MD5 and ten million iterations.

use aes::Aes256;
use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use md5::{Digest, Md5};
use zeroize::Zeroizing;

use super::{DkekError, DkekShare, random};

const MAGIC: &[u8; 8] = b"Salted__";
const ITERATIONS: u32 = 10_000_000;
/// The share fills two blocks, so the padding is always one whole block.
const PADDING: [u8; 16] = [16; 16];

/// A share under a password. Opening and sealing take seconds, on purpose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareFile([u8; 64]);

impl ShareFile {
    /// The content of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, DkekError> {
        match <[u8; 64]>::try_from(bytes) {
            Ok(file) if file.starts_with(MAGIC) => Ok(Self(file)),
            _ => Err(DkekError::NotAShareFile),
        }
    }

    /// The content for a file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Enciphers a share under a password.
    pub fn seal(share: &DkekShare, password: &[u8]) -> Self {
        Self::seal_with(share, password, ITERATIONS)
    }

    /// Deciphers the share.
    pub fn open(&self, password: &[u8]) -> Result<DkekShare, DkekError> {
        self.open_with(password, ITERATIONS)
    }

    fn seal_with(share: &DkekShare, password: &[u8], iterations: u32) -> Self {
        let salt = random::<8>();
        let mut file = [0; 64];
        file[..8].copy_from_slice(MAGIC);
        file[8..16].copy_from_slice(&*salt);
        file[16..48].copy_from_slice(&**share.expose());
        file[48..].copy_from_slice(&PADDING);
        let keys = ShareFileKeys::derive(password, &*salt, iterations);
        let cipher = cbc::Encryptor::<Aes256>::new(&(*keys.key).into(), &(*keys.iv).into());
        let sealed = cipher.encrypt_padded_mut::<NoPadding>(&mut file[16..], 48);
        debug_assert!(sealed.is_ok(), "three whole blocks");
        Self(file)
    }

    fn open_with(&self, password: &[u8], iterations: u32) -> Result<DkekShare, DkekError> {
        let keys = ShareFileKeys::derive(password, &self.0[8..16], iterations);
        let mut plain = Zeroizing::new([0; 48]);
        plain.copy_from_slice(&self.0[16..]);
        let cipher = cbc::Decryptor::<Aes256>::new(&(*keys.key).into(), &(*keys.iv).into());
        cipher
            .decrypt_padded_mut::<NoPadding>(&mut *plain)
            .map_err(|_| DkekError::NotAShareFile)?;
        let (share, padding) = plain.split_at(32);
        match <[u8; 32]>::try_from(share) {
            Ok(share) if padding == PADDING => Ok(DkekShare::from(share)),
            _ => Err(DkekError::WrongPassword),
        }
    }
}

/// The keys derived from the password.
struct ShareFileKeys {
    key: Zeroizing<[u8; 32]>,
    iv: Zeroizing<[u8; 16]>,
}

impl ShareFileKeys {
    /// `EVP_BytesToKey`: three digests of 16 bytes, each over the one before, the password and the salt.
    fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let mut stream = Zeroizing::new([0; 48]);
        let mut last = Zeroizing::new([0; 16]);
        for (round, out) in stream.chunks_exact_mut(16).enumerate() {
            let before: &[u8] = if round == 0 { &[] } else { &*last };
            let first = Md5::new().chain_update(before).chain_update(password);
            let mut digest = first.chain_update(salt).finalize();
            for _ in 1..iterations {
                digest = Md5::digest(digest);
            }
            last.copy_from_slice(&digest);
            out.copy_from_slice(&digest);
        }
        let (mut key, mut iv) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 16]));
        key.copy_from_slice(&stream[..32]);
        iv.copy_from_slice(&stream[32..]);
        Self { key, iv }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_file_with_anything_in_it_does_not_open(
            salt_and_share in proptest::collection::vec(any::<u8>(), 56),
            password in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let file = ShareFile::parse(&[MAGIC, &salt_and_share[..]].concat()).unwrap();
            let opened = file.open_with(&password, 2).map(drop);
            prop_assert_eq!(opened, Err(DkekError::WrongPassword));
        }
    }

    #[test]
    fn a_share_comes_back_with_its_password_only() {
        let share = DkekShare::random();
        let file = ShareFile::seal_with(&share, b"correct horse", 10);
        let file = ShareFile::parse(file.as_bytes()).unwrap();
        let opened = file.open_with(b"correct horse", 10).unwrap();
        assert_eq!(opened.expose(), share.expose());
        let wrong = file.open_with(b"incorrect horse", 10).unwrap_err();
        assert_eq!(wrong, DkekError::WrongPassword);
    }

    /// Made with OpenSSL's own EVP_BytesToKey and cipher, ten million iterations.
    #[test]
    fn a_file_of_openssl_opens() {
        let file = "53616c7465645f5f010203040506070887f9d935176538e9463fbe1a6b3dd38c\
                    b46c7e875ca51ee49941213a7bc067c823a9582e533c3e656c838ffea18108c8";
        let bytes: Vec<_> = (0..64)
            .map(|at| u8::from_str_radix(&file[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let share = ShareFile::parse(&bytes)
            .unwrap()
            .open(b"one-to-eight")
            .unwrap();
        assert!(share.expose().iter().copied().eq(0..32));
    }

    #[test]
    fn other_files_are_refused() {
        for bytes in [
            &b""[..],
            b"Salted__",
            &[0; 64],
            b"Salted__ and no more",
            &[b'S'; 64],
        ] {
            assert_eq!(ShareFile::parse(bytes), Err(DkekError::NotAShareFile));
        }
    }
}
