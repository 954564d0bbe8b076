use hsmux_smartcard::tlv::tlv;
use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};
use hsmux_token::Hash;
use num_bigint::BigUint;

use crate::chip::{Chip, Outcome};
use crate::crypto::ec::EcKey;
use crate::crypto::padding::{self, HASHES};
use crate::crypto::rsa::RsaKey;
use crate::key::CardKey;
use crate::timing::Operation;

const RSA_RAW: u8 = 0x20;
const RSA_DECRYPT: u8 = 0x21;
const RSA_PKCS1: u8 = 0x30;
const RSA_PSS: u8 = 0x40;
const ECDSA: u8 = 0x70;
const ECDH: u8 = 0x80;

/// SIGN: P1 is the key, P2 the algorithm. Its low digit is the hash that the card computes; 0: the host has hashed.
pub fn sign(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let algorithm = command.p2;
    let family = algorithm & 0xF0;
    let hash = hash(algorithm)?;
    let key = chip.use_key(command.p1, algorithm, Operation::Sign)?;
    let data = &command.data;
    let signature = match (&*key, family) {
        (CardKey::Rsa(key), RSA_RAW) if hash.is_none() => raw(key, data)?,
        (CardKey::Rsa(key), RSA_PKCS1) => {
            let info = match hash {
                None => data.to_vec(),
                Some(hash) => [
                    hash.digest_info_prefix(),
                    &hsmux_software::digest(hash, data),
                ]
                .concat(),
            };
            let block = padding::pkcs1(&info, key.len()).ok_or(StatusWord::WRONG_LENGTH)?;
            raw(key, &block)?
        }
        (CardKey::Rsa(key), RSA_PSS) => pss(key, hash, data)?,
        (CardKey::Ec(key), ECDSA) => {
            let digest = hash.map(|hash| hsmux_software::digest(hash, data));
            ecdsa(key, digest.as_deref().unwrap_or(data))?
        }
        (CardKey::Aes(_), _) => return Err(StatusWord::CONDITIONS_NOT_SATISFIED.into()),
        _ => return Err(StatusWord::WRONG_PARAMETERS.into()),
    };
    Ok(ResponseApdu::ok(signature))
}

/// DECRYPT: RSA without removing the padding, or ECDH with the point in the data.
pub fn decrypt(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let algorithm = command.p2;
    let operation = if algorithm == ECDH {
        Operation::Agree
    } else {
        Operation::Decrypt
    };
    let key = chip.use_key(command.p1, algorithm, operation)?;
    let answer = match (&*key, algorithm) {
        (CardKey::Rsa(key), RSA_DECRYPT) => raw(key, &command.data)?,
        (CardKey::Ec(key), ECDH) => key.agree(&command.data).ok_or(StatusWord::WRONG_DATA)?,
        _ => return Err(StatusWord::WRONG_PARAMETERS.into()),
    };
    Ok(ResponseApdu::ok(answer))
}

fn hash(algorithm: u8) -> Result<Option<Hash>, StatusWord> {
    match usize::from(algorithm & 0x0F).checked_sub(1) {
        None => Ok(None),
        Some(index) => HASHES
            .get(index)
            .copied()
            .map(Some)
            .ok_or(StatusWord::WRONG_PARAMETERS),
    }
}

fn raw(key: &RsaKey, block: &[u8]) -> Result<Vec<u8>, StatusWord> {
    if block.len() != key.len() {
        return Err(StatusWord::WRONG_LENGTH);
    }
    key.private(block).ok_or(StatusWord::WRONG_DATA)
}

fn pss(key: &RsaKey, hash: Option<Hash>, data: &[u8]) -> Result<Vec<u8>, StatusWord> {
    let block = if let Some(hash) = hash {
        padding::pss(hash, &hsmux_software::digest(hash, data), key.bits())
    } else {
        let (hash, digest) = padding::opened(data).ok_or(StatusWord::WRONG_DATA)?;
        padding::pss(hash, digest, key.bits())
    };
    raw(key, &block.ok_or(StatusWord::WRONG_LENGTH)?)
}

/// The signature in DER: SEQUENCE { r, s }.
fn ecdsa(key: &EcKey, digest: &[u8]) -> Result<Vec<u8>, StatusWord> {
    if digest.is_empty() {
        return Err(StatusWord::WRONG_LENGTH);
    }
    let (r, s) = key.sign(digest);
    Ok(tlv(0x30, &[&integer(&r), &integer(&s)]))
}

/// A positive INTEGER in DER.
fn integer(number: &BigUint) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    let sign: &[u8] = if bytes[0] & 0x80 == 0 { &[] } else { &[0] };
    tlv(0x02, &[sign, &bytes])
}
