//! Enciphering and deciphering with secret keys.
//!
//! | cipher | what follows `vault:v1:`, in base64 |
//! |---|---|
//! | AES-GCM | nonce (12 bytes), text, tag (16) |
//! | AES-CBC with HMAC | IV (16), text, HMAC-SHA-256 (32) over associated data, IV, text and the bits of the associated data in 8 bytes (as RFC 7518, section 5.2.2.1, has it) |
//! | AES-CBC raw | IV (16), text |

use std::sync::Arc;

use bytes::Bytes;
use hsmux_token::{Blob, Error, Gcm, Mechanism, ObjectId, Params, Verb, ck, ends_connection};
use subtle::ConstantTimeEq;

use super::{Budget, Engine, RsaPadding};
use crate::random::{NONCE_LEN, Nonce, random};
use crate::refusal::Refusal;

/// How a key enciphers.
#[derive(Clone, Debug)]
pub enum Cipher {
    /// AES-GCM, whose uses are counted.
    Gcm(Arc<Budget>),
    /// AES-CBC, then HMAC-SHA-256 with this key.
    CbcHmac(ObjectId),
    /// AES-CBC alone.
    RawCbc,
    /// RSA.
    Rsa(RsaPadding),
}

/// A key and how it enciphers.
#[derive(Clone, Debug)]
pub struct CipherKey {
    /// The key.
    pub object: ObjectId,
    /// How.
    pub cipher: Cipher,
}

const NONCE: usize = 12;
const TAG: usize = 16;
const BLOCK: usize = 16;
const MAC: usize = 32;

/// The one answer to every wrong ciphertext.
pub fn unreadable() -> Refusal {
    Refusal::bad("invalid ciphertext: it was altered, or is not of this key")
}

impl Engine {
    /// Enciphers. The nonce is new and random, never the caller's; `drawn` is one that belongs to this text already.
    pub async fn encrypt(
        &self,
        target: &CipherKey,
        plaintext: Bytes,
        aad: &[u8],
        drawn: Option<Nonce>,
    ) -> Result<Vec<u8>, Refusal> {
        let key = target.object;
        match &target.cipher {
            Cipher::Gcm(budget) => {
                budget.take(&self.store).await?;
                let nonce = drawn_or_new(drawn)?;
                let text = self
                    .with_key(Verb::Encrypt, key, gcm(nonce, aad), plaintext)
                    .await?;
                Ok([&nonce[..], &text].concat())
            }
            Cipher::RawCbc => {
                no_aad(aad)?;
                self.cbc_encrypt(key, plaintext, drawn).await
            }
            Cipher::CbcHmac(mac) => {
                let mut sealed = self.cbc_encrypt(key, plaintext, drawn).await?;
                let tag = self.tag(*mac, &sealed, aad).await?;
                sealed.extend(&tag);
                Ok(sealed)
            }
            Cipher::Rsa(padding) => {
                no_aad(aad)?;
                self.rsa_encrypt(key, *padding, &plaintext).await
            }
        }
    }

    /// Deciphers. A truncated text is padded and goes through the token, so that it gets the same answer as an
    /// altered one.
    pub async fn decrypt(
        &self,
        target: &CipherKey,
        mut sealed: Vec<u8>,
        aad: &[u8],
    ) -> Result<Bytes, Refusal> {
        let key = target.object;
        match &target.cipher {
            Cipher::Gcm(_) => {
                sealed.resize(sealed.len().max(NONCE + TAG), 0);
                let (nonce, text) = sealed.split_at(NONCE);
                let nonce = nonce.try_into().map_err(|_| unreadable())?;
                let text = text.to_vec();
                let opened = self.with_key(Verb::Decrypt, key, gcm(nonce, aad), text);
                opened.await.map_err(|error| judged(&error))
            }
            Cipher::RawCbc => {
                no_aad(aad)?;
                self.cbc_decrypt(key, &sealed, judged).await
            }
            Cipher::CbcHmac(mac) => {
                sealed.resize(sealed.len().max(2 * BLOCK + MAC), 0);
                let (text, tag) = sealed.split_at(sealed.len() - MAC);
                let expected = self.tag(*mac, text, aad).await?;
                if !bool::from(expected.ct_eq(tag)) {
                    return Err(unreadable());
                }
                // The MAC is right, so a failure to read it is not the client's fault.
                let ours = |error: &Error| error.clone().into();
                self.cbc_decrypt(key, text, ours).await
            }
            Cipher::Rsa(padding) => {
                no_aad(aad)?;
                self.rsa_decrypt(key, *padding, sealed).await
            }
        }
    }

    async fn cbc_encrypt(
        &self,
        key: ObjectId,
        plaintext: Bytes,
        drawn: Option<Nonce>,
    ) -> Result<Vec<u8>, Refusal> {
        let iv: [u8; BLOCK] = drawn_or_new(drawn)?;
        let mechanism = Mechanism::with_bytes(ck::CKM_AES_CBC_PAD, iv.to_vec());
        let text = self
            .with_key(Verb::Encrypt, key, mechanism, plaintext)
            .await?;
        Ok([&iv[..], &text].concat())
    }

    async fn cbc_decrypt(
        &self,
        key: ObjectId,
        sealed: &[u8],
        judge: impl Fn(&Error) -> Refusal,
    ) -> Result<Bytes, Refusal> {
        let Some((iv, text)) = sealed.split_at_checked(BLOCK) else {
            return Err(unreadable());
        };
        if text.is_empty() || !text.len().is_multiple_of(BLOCK) {
            return Err(unreadable());
        }
        let mechanism = Mechanism::with_bytes(ck::CKM_AES_CBC_PAD, iv.to_vec());
        let opened = self.with_key(Verb::Decrypt, key, mechanism, text.to_vec());
        opened.await.map_err(|error| judge(&error))
    }

    async fn tag(&self, mac: ObjectId, sealed: &[u8], aad: &[u8]) -> Result<Bytes, Refusal> {
        let bits = (aad.len() as u64) * 8;
        let input = [aad, sealed, &bits.to_be_bytes()].concat();
        let mechanism = Mechanism::plain(ck::CKM_SHA256_HMAC);
        Ok(self.with_key(Verb::Sign, mac, mechanism, input).await?)
    }
}

/// The first bytes of the nonce drawn for this text, or new ones.
fn drawn_or_new<const N: usize>(drawn: Option<Nonce>) -> Result<[u8; N], Refusal> {
    const { assert!(N <= NONCE_LEN) };
    match drawn.as_ref().and_then(|drawn| drawn.first_chunk()) {
        Some(nonce) => Ok(*nonce),
        None => Ok(random()?),
    }
}

fn gcm(nonce: [u8; NONCE], aad: &[u8]) -> Mechanism {
    Mechanism {
        kind: ck::CKM_AES_GCM,
        params: Params::Gcm(Gcm {
            iv: Blob::from(nonce.to_vec()),
            aad: Blob::from(aad.to_vec()),
            tag_bits: TAG as u64 * 8,
        }),
    }
}

fn no_aad(aad: &[u8]) -> Result<(), Refusal> {
    if aad.is_empty() {
        return Ok(());
    }
    Err(Refusal::bad(
        "associated_data is for keys that authenticate: AES-GCM and aes256-cbc",
    ))
}

/// Errors that do not depend on the text: of the key, of the mechanism, or of the token itself.
const NOT_OF_THE_TEXT: &[u64] = &[
    ck::CKR_ACTION_PROHIBITED,
    ck::CKR_DEVICE_MEMORY,
    ck::CKR_FUNCTION_CANCELED,
    ck::CKR_FUNCTION_NOT_SUPPORTED,
    ck::CKR_KEY_FUNCTION_NOT_PERMITTED,
    ck::CKR_KEY_HANDLE_INVALID,
    ck::CKR_KEY_SIZE_RANGE,
    ck::CKR_KEY_TYPE_INCONSISTENT,
    ck::CKR_MECHANISM_INVALID,
    ck::CKR_MECHANISM_PARAM_INVALID,
    ck::CKR_OBJECT_HANDLE_INVALID,
    ck::CKR_OPERATION_NOT_INITIALIZED,
    ck::CKR_PIN_EXPIRED,
    ck::CKR_PIN_INCORRECT,
    ck::CKR_PIN_LOCKED,
];

/// The one answer for tokens' many errors about a text (SoftHSM: CKR_GENERAL_ERROR), some in vendors' codes:
/// differences would reveal what is wrong with it. A code that ends the connection is the token's fault, wherever it
/// comes from.
pub(super) fn judged(error: &Error) -> Refusal {
    match error.code() {
        Some(code) if !NOT_OF_THE_TEXT.contains(&code) && !ends_connection(code) => unreadable(),
        _ => error.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::{Kind, Scope};

    #[test]
    fn whatever_a_token_says_of_a_text_is_one_answer() {
        for code in [
            ck::CKR_ENCRYPTED_DATA_INVALID,
            ck::CKR_ENCRYPTED_DATA_LEN_RANGE,
            ck::CKR_DATA_INVALID,
            ck::CKR_DATA_LEN_RANGE,
            ck::CKR_SIGNATURE_INVALID,
            ck::CKR_AEAD_DECRYPT_FAILED,
            ck::CKR_ARGUMENTS_BAD,
            ck::CKR_FUNCTION_FAILED,
            ck::CKR_GENERAL_ERROR,
            ck::CKR_VENDOR_DEFINED,
            ck::CKR_VENDOR_DEFINED | 0x1234,
        ] {
            let error = Error::vendor("C_Decrypt", code);
            assert_eq!(judged(&error), unreadable(), "{error}");
            assert_eq!(judged(&error.with_scope(Scope::Pool)), unreadable());
        }
    }

    #[test]
    fn what_is_not_of_the_text_is_said() {
        for (code, status) in [
            (ck::CKR_KEY_FUNCTION_NOT_PERMITTED, 400),
            (ck::CKR_MECHANISM_INVALID, 400),
            (ck::CKR_DEVICE_ERROR, 500),
            (ck::CKR_DEVICE_REMOVED, 503),
        ] {
            let error = Error::vendor("C_Decrypt", code).with_scope(Scope::Pool);
            let told = judged(&error);
            assert_ne!(told, unreadable(), "{error}");
            let own = Error::vendor("C_Decrypt", code);
            assert_eq!(judged(&own).status.as_u16(), status, "{own}");
        }
        let gone = Error::pool(Kind::NoReplica, "no token has the key");
        assert_eq!(judged(&gone).status.as_u16(), 503);
    }
}
