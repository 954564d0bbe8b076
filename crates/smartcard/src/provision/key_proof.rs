//! The proof of a copied key.
//!
//! A key pair signs a fresh challenge, and the known public key verifies the signature. Secret keys, keys that may
//! not sign, and curves without arithmetic here have no such proof: the original answers a challenge first, and the
//! copy must give the same answer.

use hsmux_software::PublicKey;
use hsmux_token::{Attributes, Mechanism, ck};
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};

use super::{ProvisionError, Result};
use crate::dkek::{WrappedKey, WrappedKind};
use crate::tlv::Tlv;
use crate::{Card, CardChannel, Curve, KeyReference, SignAlgorithm, cvc, ecdsa_fixed};

/// So that no signature of a proof can be one of anything else.
const DOMAIN: &[u8] = b"hsmux: proof of a copied key\0";

/// The operation of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
enum ProofMethod {
    /// PKCS#1 v1.5 with SHA-256.
    #[n(0)]
    RsaSign,
    #[n(1)]
    RsaDecrypt,
    #[n(2)]
    Ecdsa,
    /// ECDH with the key's own public point, which is on its curve for sure.
    #[n(3)]
    Agree,
    #[n(4)]
    Cmac,
    #[n(5)]
    CbcEncrypt,
}

impl ProofMethod {
    /// Which methods keys of a kind have, the best one first.
    fn of(kind: WrappedKind) -> &'static [Self] {
        match kind {
            WrappedKind::Rsa | WrappedKind::RsaCrt => &[Self::RsaSign, Self::RsaDecrypt],
            WrappedKind::Ec => &[Self::Ecdsa, Self::Agree],
            WrappedKind::Aes => &[Self::Cmac, Self::CbcEncrypt],
        }
    }

    /// The card's number for it, as in a key's allowed algorithms.
    fn algorithm(self) -> u8 {
        match self {
            Self::RsaSign => SignAlgorithm::RsaPkcs1Sha256 as u8,
            Self::RsaDecrypt => 0x21,
            Self::Ecdsa => SignAlgorithm::Ecdsa as u8,
            Self::Agree => 0x80,
            Self::Cmac => 0x18,
            Self::CbcEncrypt => 0x10,
        }
    }
}

/// The proof that a copy of a key must give.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct KeyProof {
    #[n(0)]
    method: ProofMethod,
    /// The challenge; empty: a fresh one, to sign.
    #[cbor(n(1), with = "minicbor::bytes")]
    given: Vec<u8>,
    /// The expected answer; for a fresh challenge: the SubjectPublicKeyInfo that verifies the signature.
    #[cbor(n(2), with = "minicbor::bytes")]
    expected: Vec<u8>,
}

impl KeyProof {
    /// Asks the original, on a card that is logged in. `certificate` is the key's certificate or request.
    pub(super) fn of<C: CardChannel>(
        card: &mut Card<C>,
        serial: &str,
        key: KeyReference,
        wrapped: &WrappedKey,
        certificate: Option<&[u8]>,
    ) -> Result<Self> {
        let allowed = wrapped.allowed_algorithms();
        let may =
            |method: &ProofMethod| allowed.is_empty() || allowed.contains(&method.algorithm());
        let mut public = certificate.and_then(|file| cvc::public_key_of(file).ok());
        let on_a_curve = wrapped.kind() == WrappedKind::Ec;
        if public.is_none() && on_a_curve && may(&ProofMethod::Agree) && may(&ProofMethod::Ecdsa) {
            public = public_half(card, key)?;
        }
        let mut why = String::from("it may do nothing that can be compared");
        for method in ProofMethod::of(wrapped.kind())
            .iter()
            .filter(|method| may(method))
        {
            match method.ask(card, key, public.as_ref()) {
                Ok(proof) => return Ok(proof),
                Err(ProofUnavailable::Why(reason)) => why = reason,
                Err(ProofUnavailable::Error(error)) if error.is_answer() => why = error.to_string(),
                Err(ProofUnavailable::Error(error)) => return Err(error),
            }
        }
        let card = serial.to_owned();
        Err(ProvisionError::NoProof { card, key, why })
    }

    /// The proof for a key pair whose public half is known, without the original.
    pub(super) fn of_public(public: &PublicKey) -> Self {
        let rsa = public.kind() == hsmux_token::KeyKind::Rsa;
        Self {
            method: if rsa {
                ProofMethod::RsaSign
            } else {
                ProofMethod::Ecdsa
            },
            given: Vec::new(),
            expected: public.spki().to_vec(),
        }
    }

    /// Has the copy prove itself, on a card that is logged in.
    pub(super) fn check<C: CardChannel>(
        &self,
        card: &mut Card<C>,
        serial: &str,
        key: KeyReference,
    ) -> Result<()> {
        let not_proved = |why: String| ProvisionError::NotProved {
            card: serial.to_owned(),
            key,
            why,
        };
        let outcome = if self.given.is_empty() {
            let public = PublicKey::from_spki(&self.expected)
                .map_err(|error| not_proved(error.to_string()))?;
            signs(card, key, self.method, &public).and_then(|verified| {
                verified.map_err(|why| not_proved(format!("its signature is wrong ({why})")))
            })
        } else {
            answer(card, key, self.method, &self.given).and_then(|answer| {
                let same = answer == self.expected;
                same.then_some(())
                    .ok_or_else(|| not_proved("it answers otherwise than the original".into()))
            })
        };
        match outcome {
            // The card says no: the key is there and is of another kind, or may do less.
            Err(ProvisionError::Card(error)) if error.status().is_some() => {
                Err(not_proved(error.to_string()))
            }
            outcome => outcome,
        }
    }
}

/// Why a method will not do.
enum ProofUnavailable {
    Why(String),
    Error(ProvisionError),
}

impl<E: Into<ProvisionError>> From<E> for ProofUnavailable {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl ProofMethod {
    fn ask<C: CardChannel>(
        self,
        card: &mut Card<C>,
        key: KeyReference,
        public: Option<&PublicKey>,
    ) -> Result<KeyProof, ProofUnavailable> {
        let unknown =
            || ProofUnavailable::Why("its public half is unknown: it has no certificate".into());
        let given = match self {
            Self::RsaSign | Self::Ecdsa => match public {
                Some(public) => match signs(card, key, self, public)? {
                    Ok(()) => return Ok(KeyProof::of_public(public)),
                    Err(why) => {
                        return Err(ProofUnavailable::Why(format!("its certificate: {why}")));
                    }
                },
                // PKCS#1 v1.5 signs the same in the same way each time; ECDSA does not.
                None if self == Self::RsaSign => challenge(card)?,
                None => return Err(unknown()),
            },
            Self::RsaDecrypt => {
                let mechanism = Mechanism::plain(ck::CKM_RSA_PKCS);
                let public = public.ok_or_else(unknown)?;
                let sealed = public.encrypt(&mechanism, &challenge(card)?);
                sealed.map_err(|error| ProofUnavailable::Why(error.to_string()))?
            }
            Self::Agree => public.and_then(point).ok_or_else(unknown)?,
            Self::Cmac | Self::CbcEncrypt => challenge(card)?,
        };
        let expected = answer(card, key, self, &given)?;
        Ok(KeyProof {
            method: self,
            given,
            expected,
        })
    }
}

/// The public half of a key on a curve, from the key itself: with a curve's generator it agrees on its own
/// public point. Which curve is its own shows by a signature that verifies; a card refuses points of others.
fn public_half<C: CardChannel>(card: &mut Card<C>, key: KeyReference) -> Result<Option<PublicKey>> {
    for curve in Curve::ALL {
        let point = match card.agree_on_point(key, curve.generator) {
            Ok(point) => point,
            Err(error) if error.status().is_some() => continue,
            Err(error) => return Err(error.into()),
        };
        let attributes = Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
            .with_number(ck::CKA_KEY_TYPE, ck::CKK_EC)
            .with(ck::CKA_EC_PARAMS, curve.params())
            .with(ck::CKA_EC_POINT, point.to_vec());
        if let Ok(public) = PublicKey::from_attributes(&attributes)
            && signs(card, key, ProofMethod::Ecdsa, &public)?.is_ok()
        {
            return Ok(Some(public));
        }
    }
    Ok(None)
}

/// The answer of a key, which is the same each time.
fn answer<C: CardChannel>(
    card: &mut Card<C>,
    key: KeyReference,
    method: ProofMethod,
    given: &[u8],
) -> Result<Vec<u8>> {
    Ok(match method {
        ProofMethod::RsaSign => card.sign(key, SignAlgorithm::RsaPkcs1Sha256, given)?,
        ProofMethod::RsaDecrypt => digest(&card.decrypt(key, given)?),
        ProofMethod::Ecdsa => card.sign(key, SignAlgorithm::Ecdsa, given)?,
        ProofMethod::Agree => digest(&card.agree(key, given)?),
        ProofMethod::Cmac => card.cmac(key, given)?.to_vec(),
        ProofMethod::CbcEncrypt => card.cbc_encrypt(key, &[0; 16], given)?,
    })
}

/// Lets the key sign a fresh challenge, and verifies the signature; the inner error says why it is wrong.
fn signs<C: CardChannel>(
    card: &mut Card<C>,
    key: KeyReference,
    method: ProofMethod,
    public: &PublicKey,
) -> Result<Result<(), String>> {
    let fresh = challenge(card)?;
    let (mechanism, data) = if method == ProofMethod::Ecdsa {
        // Never longer than the curve: not every card truncates a digest.
        let length = (public.bits() / 8).min(32);
        let mut digest = digest(&fresh);
        digest.truncate(length);
        (ck::CKM_ECDSA, digest)
    } else {
        (ck::CKM_SHA256_RSA_PKCS, fresh)
    };
    let mut signature = answer(card, key, method, &data)?;
    if method == ProofMethod::Ecdsa {
        match ecdsa_fixed(&signature, public.bits().div_ceil(8)) {
            Ok(fixed) => signature = fixed,
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    let verified = public.verify(&Mechanism::plain(mechanism), &data, &signature);
    Ok(verified.map_err(|error| error.to_string()))
}

/// Something fresh, with the domain before it: 64 bytes, whole blocks of AES.
fn challenge<C: CardChannel>(card: &mut Card<C>) -> Result<Vec<u8>> {
    let random = card.challenge(32)?;
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(&*random);
    let mut challenge = random.to_vec();
    challenge.extend_from_slice(&digest.finalize());
    Ok(challenge)
}

/// Secrets are compared by their digest, since it may be in a backup.
fn digest(secret: &[u8]) -> Vec<u8> {
    Sha256::digest(secret).to_vec()
}

/// The public point of a SubjectPublicKeyInfo: its bit string, without the count of unused bits.
fn point(public: &PublicKey) -> Option<Vec<u8>> {
    let (info, _) = Tlv::first(public.spki()).ok()?;
    let bits = info.child(0x03).ok()?.value;
    let (_, point) = bits.split_first()?;
    (point.first() == Some(&0x04)).then(|| point.to_vec())
}
