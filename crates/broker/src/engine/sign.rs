//! Signatures: hashed here, signed by the token, verified here with the public half.

use std::borrow::Cow;

use bytes::Bytes;
use hsmux_software::{PublicKey, digest, prehashed_input};
use hsmux_token::{Hash, Mechanism, ObjectId, Params, Pss, Verb, ck};

use super::Engine;
use super::rsa::{SIGNED, refuses_parameter};
use crate::key::{Shape, hash_word};
use crate::refusal::Refusal;

/// How an RSA key signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RsaScheme {
    /// RSASSA-PSS with so many bytes of salt; `None`: as many as fit, and any when verifying.
    Pss(Option<u64>),
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
}

/// The parameters of a signature.
#[derive(Clone, Copy, Debug)]
pub struct SigningOptions {
    /// The hash; `None`: the data is signed without one, as PKCS#1 v1.5 can.
    pub hash: Option<Hash>,
    /// True if the data is the hash already.
    pub prehashed: bool,
    /// For RSA.
    pub scheme: RsaScheme,
}

impl SigningOptions {
    /// The mechanism and what it takes.
    fn apply<'a>(
        &self,
        shape: Shape,
        key: &PublicKey,
        data: &'a [u8],
    ) -> Result<(Mechanism, Cow<'a, [u8]>), Refusal> {
        if shape == Shape::Ed25519 {
            if self.prehashed {
                return Err(Refusal::bad(
                    "ed25519 takes the data itself: prehashed is not for it",
                ));
            }
            return Ok((Mechanism::plain(ck::CKM_EDDSA), data.into()));
        }
        let mechanism = self.mechanism(shape, key)?;
        let Some(hash) = self.hash else {
            if mechanism.kind != ck::CKM_RSA_PKCS || !self.prehashed {
                let message =
                    "hash_algorithm none is for prehashed data and signature_algorithm pkcs1v15";
                return Err(Refusal::bad(message));
            }
            return Ok((mechanism, data.into()));
        };
        let digest = if self.prehashed {
            data.to_vec()
        } else {
            digest(hash, data)
        };
        if digest.len() != hash.len() {
            return Err(Refusal::bad(format!(
                "prehashed input of {} bytes is not of {hash:?}, which gives {}",
                digest.len(),
                hash.len()
            )));
        }
        let input = prehashed_input(hash, &mechanism, &digest).into_owned();
        Ok((mechanism, input.into()))
    }

    fn mechanism(&self, shape: Shape, key: &PublicKey) -> Result<Mechanism, Refusal> {
        Ok(match (shape, self.scheme) {
            (Shape::Ecdsa(_), _) => Mechanism::plain(ck::CKM_ECDSA),
            (Shape::Rsa { .. }, RsaScheme::Pkcs1) => Mechanism::plain(ck::CKM_RSA_PKCS),
            (Shape::Rsa { .. }, RsaScheme::Pss(salt)) => {
                let hash = self
                    .hash
                    .ok_or_else(|| Refusal::bad("PSS needs a hash_algorithm"))?;
                let most = most_salt(key, hash);
                if let Some(salt) = salt.filter(|salt| *salt > most) {
                    return Err(Refusal::bad(format!(
                        "salt_length {salt}: there is room for {most} bytes with this key and hash"
                    )));
                }
                pss(hash, salt.unwrap_or(most))
            }
            _ => return Err(Refusal::bad("keys of this type do not sign")),
        })
    }
}

/// As much salt as fits (RFC 8017, section 9.1.1).
fn most_salt(key: &PublicKey, hash: Hash) -> u64 {
    let room = (key.bits() - 1).div_ceil(8);
    room.saturating_sub(hash.len() + 2) as u64
}

fn pss(hash: Hash, salt: u64) -> Mechanism {
    Mechanism {
        kind: ck::CKM_RSA_PKCS_PSS,
        params: Params::Pss(Pss {
            hash: hash.mechanism(),
            mgf: hash.mgf(),
            salt,
        }),
    }
}

impl Engine {
    /// A signature in the form of PKCS#11: for a curve, r and s of equal length.
    pub async fn sign(
        &self,
        (object, shape): (ObjectId, Shape),
        public: &PublicKey,
        recipe: SigningOptions,
        data: &[u8],
    ) -> Result<Bytes, Refusal> {
        let (mechanism, input) = recipe.apply(shape, public, data)?;
        if mechanism.kind == ck::CKM_RSA_PKCS && *input == *SIGNED {
            let message = "this input is the broker's own: its signature is what hides bad PKCS#1 v1.5 padding";
            return Err(Refusal::bad(message));
        }
        let (kind, input) = (mechanism.kind, input.into_owned());
        let signed = self.with_key(Verb::Sign, object, mechanism, input);
        Ok(signed.await.map_err(|error| match recipe.hash {
            Some(hash) if kind == ck::CKM_RSA_PKCS_PSS && refuses_parameter(&error) => {
                let lacking = format!(
                    "the tokens do not have CKM_RSA_PKCS_PSS with {}",
                    hash_word(hash)
                );
                self.with_choice(format_args!("{error}: {lacking}"), kind)
            }
            _ => error,
        })?)
    }
}

/// Verifies a signature of this key over this data.
pub fn verify(
    shape: Shape,
    public: &PublicKey,
    recipe: SigningOptions,
    data: &[u8],
    signature: &[u8],
) -> Result<bool, Refusal> {
    let (mut mechanism, input) = recipe.apply(shape, public, data)?;
    let mut fits = || {
        if let (Params::Pss(params), RsaScheme::Pss(None)) = (&mut mechanism.params, recipe.scheme)
        {
            // The signature shows the salt; one without a salt inside is no signature at all.
            params.salt = public.salt(params, signature)?.unwrap_or(params.salt);
        }
        public.verify(&mechanism, &input, signature)
    };
    match fits() {
        Ok(()) => Ok(true),
        Err(error) => match error.code() {
            Some(ck::CKR_SIGNATURE_INVALID | ck::CKR_SIGNATURE_LEN_RANGE) => Ok(false),
            _ => Err(error.into()),
        },
    }
}
