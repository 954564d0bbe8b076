//! A token in memory with real P-256 signatures. Its cipher adds a constant and its MAC is a digest: tests look only
//! at the operations that the module asks for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hsmux_software::{PublicKey, digest};
use hsmux_token::ck::*;
use hsmux_token::fake::FakeToken;
use hsmux_token::*;
use p256::ecdsa::SigningKey;
use p256::ecdsa::signature::hazmat::PrehashSigner;

pub const P256: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// Labels of the objects that it holds.
pub const EC: &str = "ec";
pub const RSA: &str = "rsa";
pub const AES: &str = "aes";
pub const CERTIFICATE: &str = "certificate";
pub const EACH_TIME: &str = "each time";

/// The token, and how often it was asked to do something.
pub struct Soft {
    pub token: Arc<FakeToken>,
    pub calls: Arc<AtomicUsize>,
}

pub fn soft() -> Soft {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let state = State::default();
    let token = FakeToken::builder("soft")
        .objects(objects())
        .info(|info| {
            info.flags |= TokenFlags::LOGIN_REQUIRED;
            info.mechanisms = mechanisms();
            info.pin_length = (4, 64);
        })
        .answer(move |operation| {
            counted.fetch_add(1, Ordering::Relaxed);
            state.answer(operation)
        })
        .build();
    Soft { token, calls }
}

fn mechanisms() -> Vec<MechanismInfo> {
    let sign = CKF_SIGN | CKF_VERIFY;
    let cipher = CKF_ENCRYPT | CKF_DECRYPT;
    let mut all = vec![
        (CKM_RSA_PKCS, sign | cipher | CKF_SIGN_RECOVER | CKF_WRAP),
        (CKM_RSA_X_509, sign),
        (CKM_SHA256_RSA_PKCS, sign),
        (CKM_RSA_PKCS_OAEP, cipher),
        (CKM_ECDSA, sign | CKF_HW),
        (CKM_EC_KEY_PAIR_GEN, CKF_GENERATE_KEY_PAIR),
        (CKM_AES_KEY_GEN, CKF_GENERATE),
        (CKM_AES_ECB, cipher),
        (CKM_AES_CBC, cipher),
        (CKM_AES_CBC_PAD, cipher),
        (CKM_AES_CTR, cipher),
        (CKM_AES_GCM, cipher),
        (CKM_SHA256_HMAC, sign),
        (CKM_AES_KEY_WRAP, CKF_WRAP | CKF_UNWRAP),
        (CKM_ECDH1_DERIVE, CKF_DERIVE),
    ];
    all.sort_unstable();
    let info = |(kind, flags)| MechanismInfo {
        kind,
        min_key: 16,
        max_key: 4096,
        flags,
    };
    all.into_iter().map(info).collect()
}

fn signing_key() -> SigningKey {
    SigningKey::from_slice(&[7; 32]).unwrap()
}

fn point() -> Vec<u8> {
    let point = signing_key().verifying_key().to_sec1_point(false);
    [&[4, 65], point.as_bytes()].concat()
}

fn key(class: u64, key_type: u64, label: &str, private: bool) -> Attributes {
    Attributes::default()
        .with_number(CKA_CLASS, class)
        .with_number(CKA_KEY_TYPE, key_type)
        .with(CKA_LABEL, label.as_bytes().to_vec())
        .with(CKA_ID, label.as_bytes().to_vec())
        .with_flag(CKA_TOKEN, true)
        .with_flag(CKA_PRIVATE, private)
}

fn objects() -> Vec<Object> {
    let mut modulus = vec![0xc1; 128];
    modulus[127] = 0x0d;
    let ec = |class, private| key(class, CKK_EC, EC, private).with(CKA_EC_PARAMS, P256.to_vec());
    let rsa = |class, private| {
        key(class, CKK_RSA, RSA, private)
            .with(CKA_MODULUS, modulus.clone())
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
    };
    let secret = |attributes: Attributes| {
        attributes
            .with_flag(CKA_SENSITIVE, true)
            .with_flag(CKA_EXTRACTABLE, false)
    };
    let all = vec![
        ec(CKO_PUBLIC_KEY, false).with(CKA_EC_POINT, point()),
        secret(ec(CKO_PRIVATE_KEY, true)).with_flag(CKA_DECRYPT, false),
        rsa(CKO_PUBLIC_KEY, false),
        secret(rsa(CKO_PRIVATE_KEY, true)),
        secret(key(CKO_SECRET_KEY, CKK_AES, AES, true)).with_number(CKA_VALUE_LEN, 32),
        secret(key(CKO_PRIVATE_KEY, CKK_EC, EACH_TIME, true))
            .with(CKA_EC_PARAMS, P256.to_vec())
            .with_flag(CKA_ALWAYS_AUTHENTICATE, true),
        Attributes::default()
            .with_number(CKA_CLASS, CKO_CERTIFICATE)
            .with_number(CKA_CERTIFICATE_TYPE, CKC_X_509)
            .with(CKA_LABEL, CERTIFICATE.as_bytes().to_vec())
            .with(CKA_VALUE, b"not really".to_vec())
            .with_flag(CKA_TOKEN, true)
            .with_flag(CKA_PRIVATE, false),
    ];
    all.into_iter().map(named).collect()
}

/// An object under a name that is its own.
pub fn named(attributes: Attributes) -> Object {
    let class = Class(attributes.number(CKA_CLASS).unwrap());
    let label = attributes.get(CKA_LABEL).unwrap_or_default();
    Object {
        id: ObjectId::of_unidentified(class, "soft", b"", label),
        attributes,
    }
}

/// Attributes that no template of C_CreateObject may have (PKCS#11 3.1, sections 4.7 and 6.1.2).
const SAID_BY_TOKENS: [u64; 2] = [CKA_LOCAL, CKA_MODULUS_BITS];

#[derive(Default)]
struct State {
    last: AtomicU64,
    session: Mutex<HashMap<u64, Attributes>>,
}

impl State {
    fn answer(&self, operation: &Operation) -> Result<Outcome> {
        match operation {
            Operation::Use {
                verb,
                mechanism,
                data,
                ..
            } => use_key(*verb, mechanism, data),
            Operation::Begin { mechanism, .. } => match &mechanism.params {
                // As SoftHSM says it.
                Params::Oaep(oaep) if oaep.hash == CKM_SHA512 => {
                    Err(Error::vendor("C_DecryptInit", CKR_ARGUMENTS_BAD))
                }
                _ => Ok(Outcome::Done),
            },
            Operation::Random { len } => Ok(bytes((0..*len).map(|at| at as u8).collect())),
            Operation::Create { template, .. }
                if SAID_BY_TOKENS.iter().any(|a| template.get(*a).is_some()) =>
            {
                Err(Error::vendor("C_CreateObject", CKR_ATTRIBUTE_READ_ONLY))
            }
            Operation::Generate { template, .. } | Operation::Create { template, .. } => {
                Ok(Outcome::Objects(vec![self.make(template)]))
            }
            Operation::GeneratePair {
                public, private, ..
            } => {
                let both = public.clone().with(CKA_EC_POINT, point());
                let both = [self.make(&both), self.make(private)];
                Ok(Outcome::Objects(both.into()))
            }
            Operation::Wrap { .. } => Ok(bytes(vec![0x77; 40])),
            Operation::Read { object } => {
                let ObjectRef::Session(object) = object else {
                    return Err(Error::vendor(
                        "C_GetAttributeValue",
                        CKR_ATTRIBUTE_SENSITIVE,
                    ));
                };
                let session = self.session.lock().unwrap();
                let attributes = session[&object.handle].clone();
                Ok(Outcome::Objects(vec![Made {
                    session: Some(*object),
                    object: named(attributes.with(CKA_VALUE, vec![0x5a; 16])),
                }]))
            }
            Operation::Destroy { object } => {
                if let ObjectRef::Session(object) = object {
                    self.session.lock().unwrap().remove(&object.handle);
                }
                Ok(Outcome::Done)
            }
            other => Err(Error::vendor(other.call(), CKR_FUNCTION_NOT_SUPPORTED)),
        }
    }

    fn make(&self, template: &Attributes) -> Made {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut attributes = template.clone();
        attributes.remove(CKA_VALUE);
        if attributes.get(CKA_CLASS).is_none() {
            attributes.set_number(CKA_CLASS, CKO_SECRET_KEY);
        }
        self.session
            .lock()
            .unwrap()
            .insert(handle, attributes.clone());
        let session = SessionObject { owner: 1, handle };
        let token = attributes.flag(CKA_TOKEN) == Some(true);
        Made {
            session: (!token).then_some(session),
            object: named(attributes),
        }
    }
}

fn bytes(bytes: Vec<u8>) -> Outcome {
    Outcome::Bytes(bytes.into())
}

/// The token's output for a text.
pub const OAEP: [u8; 128] = [0x66; 128];

fn use_key(verb: Verb, mechanism: &Mechanism, data: &[u8]) -> Result<Outcome> {
    match (verb, mechanism.kind) {
        (Verb::Sign, CKM_ECDSA) => {
            assert!(data.len() <= 32, "more than the order has");
            let signature: p256::ecdsa::Signature = signing_key().sign_prehash(data).unwrap();
            Ok(bytes(signature.to_bytes().to_vec()))
        }
        (Verb::Sign | Verb::SignRecover, CKM_RSA_PKCS) => Ok(bytes(vec![0x55; 128])),
        (Verb::Sign, CKM_SHA256_HMAC) => Ok(bytes(digest(Hash::Sha256, data))),
        (Verb::Verify, CKM_SHA256_HMAC) => {
            let len = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
            let (mac, message) = data[4..].split_at(len);
            if mac == digest(Hash::Sha256, message) {
                return Ok(Outcome::Done);
            }
            Err(Error::vendor("C_Verify", CKR_SIGNATURE_INVALID))
        }
        (Verb::Decrypt, CKM_RSA_PKCS) => Ok(bytes(b"plain".to_vec())),
        (Verb::Encrypt, CKM_RSA_PKCS_OAEP) => Ok(bytes(OAEP.to_vec())),
        (Verb::Encrypt, CKM_AES_GCM) => Ok(bytes([data, &[0; 16]].concat())),
        (Verb::Decrypt, CKM_AES_GCM) => Ok(bytes(data[..data.len() - 16].to_vec())),
        (Verb::Encrypt | Verb::Decrypt, _) => toy::cipher(verb, mechanism, data).map(bytes),
        _ => Err(Error::vendor("C_Use", CKR_MECHANISM_INVALID)),
    }
}

/// The public key of the P-256 pair.
pub fn public_key() -> PublicKey {
    let attributes = Attributes::default()
        .with_number(CKA_CLASS, CKO_PUBLIC_KEY)
        .with_number(CKA_KEY_TYPE, CKK_EC)
        .with(CKA_EC_PARAMS, P256.to_vec())
        .with(CKA_EC_POINT, point());
    PublicKey::from_attributes(&attributes).unwrap()
}

/// A block cipher that adds 1 to each byte, in the modes of AES.
pub mod toy {
    use super::*;

    pub fn cipher(verb: Verb, mechanism: &Mechanism, data: &[u8]) -> Result<Vec<u8>> {
        match (&mechanism.params, mechanism.kind) {
            (Params::None, CKM_AES_ECB) => Ok(data.iter().map(|b| step(verb, *b)).collect()),
            (Params::Bytes(iv), CKM_AES_CBC) => Ok(cbc(verb, iv, data)),
            (Params::Bytes(iv), CKM_AES_CBC_PAD) => padded(verb, iv, data),
            (Params::Ctr { bits, block }, CKM_AES_CTR) => Ok(ctr(*bits, block, data)),
            _ => Err(Error::vendor("C_Encrypt", CKR_MECHANISM_INVALID)),
        }
    }

    fn step(verb: Verb, byte: u8) -> u8 {
        match verb {
            Verb::Encrypt => byte.wrapping_add(1),
            _ => byte.wrapping_sub(1),
        }
    }

    fn cbc(verb: Verb, iv: &[u8], data: &[u8]) -> Vec<u8> {
        assert!(data.len().is_multiple_of(16), "whole blocks only");
        let mut last = iv.to_vec();
        let mut out = Vec::new();
        for block in data.chunks(16) {
            let mixed = |with: &[u8], block: &[u8]| -> Vec<u8> {
                block.iter().zip(with).map(|(a, b)| a ^ b).collect()
            };
            let stepped =
                |block: &[u8]| -> Vec<u8> { block.iter().map(|byte| step(verb, *byte)).collect() };
            let next = if verb == Verb::Encrypt {
                last = stepped(&mixed(&last, block));
                last.clone()
            } else {
                let plain = mixed(&last, &stepped(block));
                last = block.to_vec();
                plain
            };
            out.extend(next);
        }
        out
    }

    fn padded(verb: Verb, iv: &[u8], data: &[u8]) -> Result<Vec<u8>> {
        let mut data = data.to_vec();
        if verb == Verb::Encrypt {
            let missing = 16 - data.len() % 16;
            data.resize(data.len() + missing, missing as u8);
            return Ok(cbc(verb, iv, &data));
        }
        let mut plain = cbc(verb, iv, &data);
        let pad = *plain.last().unwrap() as usize;
        if !(1..=16).contains(&pad) {
            return Err(Error::vendor("C_Decrypt", CKR_ENCRYPTED_DATA_INVALID));
        }
        plain.truncate(plain.len() - pad);
        Ok(plain)
    }

    fn ctr(bits: u64, block: &[u8], data: &[u8]) -> Vec<u8> {
        let start = u128::from_be_bytes(block.try_into().unwrap());
        let mask = u128::MAX >> (128 - bits);
        let stream = (0..).flat_map(|at: u128| {
            let block = start & !mask | start.wrapping_add(at) & mask;
            block.to_be_bytes()
        });
        data.iter().zip(stream).map(|(a, b)| a ^ b).collect()
    }
}
