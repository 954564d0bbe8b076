//! The proof of a fresh copy: it does what the key that it is named by would do.
//!
//! The pool proves a replica again before it serves; here a copy that went wrong on its way takes the
//! whole change back. Secret keys were compared by their check value when they were unwrapped.

use super::token_access::TokenAccess;
use hsmux_software::{PublicKey, digest, prehashed_input};
use hsmux_token::ck::*;
use hsmux_token::{Class, Error, Hash, KeyKind, Kind, Mechanism, Object, Result, Verb};

/// The prefix of signed challenges: a proof can never give a signature over anything else.
const DOMAIN: &[u8] = b"hsmux copy proof v1";

/// Proves one object of a token: a private key against its public half, a secret key against the
/// copy that `peer` has, where both may encipher.
pub(super) fn copy(access: TokenAccess, object: &Object, peer: Option<TokenAccess>) -> Result<()> {
    if object.attributes.flag(CKA_ALWAYS_AUTHENTICATE) == Some(true) {
        return Ok(());
    }
    match (object.id.class, peer) {
        (Class::PRIVATE_KEY, _) => private(access, object),
        (Class::SECRET_KEY, Some(peer)) => secret(access, peer, object),
        _ => Ok(()),
    }
}

fn private(access: TokenAccess, object: &Object) -> Result<()> {
    let public = PublicKey::from_attributes(&object.attributes).map_err(|e| e.at(access.name))?;
    let may = |usage| object.attributes.flag(usage) == Some(true);
    if may(CKA_SIGN) {
        for (mechanism, data) in signable(&public, access)? {
            if !access.offers(mechanism.kind, CKF_SIGN) {
                continue;
            }
            let signature = access.with_key(
                Verb::Sign,
                object.id.into(),
                mechanism.clone(),
                data.clone(),
            )?;
            let good = public.verify(&mechanism, &data, &signature);
            return good.map_err(|_| another(access, object));
        }
    }
    let cipher = super::channel::oaep(CKM_SHA_1);
    if may(CKA_DECRYPT) && public.kind() == KeyKind::Rsa && access.offers(cipher.kind, CKF_DECRYPT)
    {
        let secret = super::random::<16>()?;
        let text = public.encrypt(&cipher, &secret)?;
        let opened = access.with_key(Verb::Decrypt, object.id.into(), cipher, text)?;
        if opened.as_ref() != secret {
            return Err(another(access, object));
        }
    }
    Ok(())
}

fn signable(public: &PublicKey, access: TokenAccess) -> Result<Vec<(Mechanism, Vec<u8>)>> {
    let mut challenge = DOMAIN.to_vec();
    challenge.extend_from_slice(access.token.info().serial.as_bytes());
    challenge.extend_from_slice(&super::random::<32>()?);
    let hashed = digest(Hash::Sha256, &challenge);
    Ok(match public.kind() {
        KeyKind::Rsa => {
            let raw = Mechanism::plain(CKM_RSA_PKCS);
            let data = prehashed_input(Hash::Sha256, &raw, &hashed).to_vec();
            vec![
                (Mechanism::plain(CKM_SHA256_RSA_PKCS), challenge),
                (raw, data),
            ]
        }
        KeyKind::Ec => {
            let fits = hashed.len().min(public.signature_len() / 2);
            let raw = Mechanism::plain(CKM_ECDSA);
            vec![
                (raw, hashed[..fits].to_vec()),
                (Mechanism::plain(CKM_ECDSA_SHA256), challenge),
            ]
        }
        KeyKind::Edwards => vec![(Mechanism::plain(CKM_EDDSA), challenge)],
        _ => Vec::new(),
    })
}

/// Deciphers a random text that the peer has enciphered. Each text is new, so a fixed IV reveals nothing.
fn secret(access: TokenAccess, peer: TokenAccess, object: &Object) -> Result<()> {
    let may = |usage| object.attributes.flag(usage) == Some(true);
    let kind = match object.attributes.number(CKA_KEY_TYPE) {
        Some(CKK_AES) => CKM_AES_CBC,
        _ => return Ok(()),
    };
    let able = may(CKA_ENCRYPT) && may(CKA_DECRYPT);
    if !able || !access.offers(kind, CKF_DECRYPT) || !peer.offers(kind, CKF_ENCRYPT) {
        return Ok(());
    }
    let cipher = Mechanism::with_bytes(kind, super::random::<16>()?.to_vec());
    let text = super::random::<32>()?;
    let key = object.id.into();
    let sealed = peer.with_key(Verb::Encrypt, key, cipher.clone(), text.to_vec())?;
    let opened = access.with_key(Verb::Decrypt, key, cipher, sealed)?;
    if opened.as_ref() == text {
        Ok(())
    } else {
        Err(another(access, object))
    }
}

fn another(access: TokenAccess, object: &Object) -> Error {
    Error::token(
        Kind::Unproved,
        format!(
            "{}: the copy of {:?} is another key: it did not pass its proof",
            access.name, object.id
        ),
    )
}
