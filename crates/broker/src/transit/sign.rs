//! sign, verify.

use std::pin::pin;

use hsmux_config::Action;
use hsmux_token::Hash;
use serde::Deserialize;

use super::batch::{Batch, Failures};
use super::marshal::Marshaling;
use super::requested_key::{ChosenVersion, KeyUse, RequestedKey, hash};
use super::sealed_text::SealedText;
use super::{Data, Reply, bytes, check_length, hmac, loose};
use crate::engine::{RsaScheme, SigningOptions, verify as check};
use crate::http::ApiCall;
use crate::key::Shape;
use crate::refusal::Refusal;

/// An item of sign or verify. The parameters may be in the batch or in the item.
#[derive(Deserialize)]
pub struct SignItem {
    input: Option<String>,
    signature: Option<String>,
    hmac: Option<String>,
    hash_algorithm: Option<String>,
    algorithm: Option<String>,
    #[serde(default, deserialize_with = "loose::value")]
    prehashed: Option<bool>,
    signature_algorithm: Option<String>,
    marshaling_algorithm: Option<String>,
    salt_length: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "loose::value")]
    key_version: Option<u32>,
}

/// An item in its request: fields of the request are defaults for the item.
#[derive(Clone, Copy)]
pub(super) struct SignRequest<'a> {
    item: &'a SignItem,
    whole: &'a SignItem,
}

impl SignItem {
    /// The parameters of the item, without the data.
    pub(super) fn words(&self) -> Self {
        Self {
            input: None,
            signature: None,
            hmac: None,
            hash_algorithm: self.hash_algorithm.clone(),
            algorithm: self.algorithm.clone(),
            prehashed: self.prehashed,
            signature_algorithm: self.signature_algorithm.clone(),
            marshaling_algorithm: self.marshaling_algorithm.clone(),
            salt_length: self.salt_length.clone(),
            key_version: self.key_version,
        }
    }

    pub(super) fn within<'a>(&'a self, whole: &'a Self) -> SignRequest<'a> {
        SignRequest { item: self, whole }
    }
}

impl<'a> SignRequest<'a> {
    fn said<T>(self, what: impl Fn(&'a SignItem) -> Option<T>) -> Option<T> {
        what(self.item).or_else(|| what(self.whole))
    }

    pub(super) fn hash_algorithm(self) -> Option<&'a str> {
        self.said(|item| item.hash_algorithm.as_deref())
    }

    pub(super) fn algorithm(self) -> Option<&'a str> {
        self.said(|item| item.algorithm.as_deref())
    }

    pub(super) fn key_version(self) -> Option<u32> {
        self.said(|item| item.key_version)
    }

    pub(super) fn data(self) -> Result<Vec<u8>, Refusal> {
        let Some(input) = &self.item.input else {
            return Err(Refusal::bad("missing input"));
        };
        bytes("input", Some(input))
    }

    fn marshaling(self) -> Result<Marshaling, Refusal> {
        Marshaling::of(self.said(|item| item.marshaling_algorithm.as_deref()))
    }

    fn recipe(self, call: &ApiCall) -> Result<SigningOptions, Refusal> {
        let word = call.variant().or(self.hash_algorithm());
        let word = word.or(self.algorithm()).unwrap_or("sha2-256");
        let hash = (word != "none").then(|| hash(word)).transpose()?;
        Ok(SigningOptions {
            hash,
            prehashed: self.said(|item| item.prehashed).unwrap_or(false),
            scheme: match self.said(|item| item.signature_algorithm.as_deref()) {
                None | Some("" | "pss") => RsaScheme::Pss(self.salt(hash)?),
                Some("pkcs1v15") => RsaScheme::Pkcs1,
                Some(other) => {
                    let message = format!("invalid signature_algorithm {other:?}: pss or pkcs1v15");
                    return Err(Refusal::bad(message));
                }
            },
        })
    }

    /// `auto`, `hash` (as long as this one's), or a number of bytes.
    fn salt(self, hash: Option<Hash>) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.said(|item| item.salt_length.as_ref()) else {
            return Ok(None);
        };
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        match &text[..] {
            "" | "auto" | "null" => Ok(None),
            "hash" => Ok(hash.map(|hash| hash.len() as u64)),
            number => number.parse().map(Some).map_err(|_| {
                Refusal::bad(format!(
                    "salt_length {number}: auto, hash, or a number of bytes"
                ))
            }),
        }
    }
}

/// `sign/:name`, `sign/:name/:hash_algorithm`
pub async fn sign(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Sign)?;
    let batch = call.json().await.map(with_input)?;
    let key = RequestedKey::find(&call)?;
    let whole = batch.whole().words();
    let one = async |item: SignItem| {
        let of = KeyUse::new(&call, &key);
        let work = pin!(sign_one(&of, item.within(&whole)));
        of.run("sign", work).await
    };
    batch.answer(Failures::AreSaid, call.admitted(), one).await
}

/// `verify/:name`, `verify/:name/:hash_algorithm`
pub async fn verify(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Verify)?;
    let batch = call.json().await.map(with_input)?;
    let key = RequestedKey::find(&call)?;
    let whole = batch.whole().words();
    let one = async |item: SignItem| {
        let of = KeyUse::new(&call, &key);
        let work = pin!(valid(&of, item.within(&whole)));
        of.run("verify", work).await
    };
    batch.answer(Failures::AreSaid, call.admitted(), one).await
}

/// A request with neither input nor a batch means an empty input, as in the dialect; an item needs one.
fn with_input(mut batch: Batch<SignItem>) -> Batch<SignItem> {
    batch.whole_mut().input.get_or_insert_default();
    batch
}

async fn valid(of: &KeyUse<'_>, asked: SignRequest<'_>) -> Result<Data, Refusal> {
    let valid = match (&asked.item.signature, &asked.item.hmac) {
        (Some(signature), None) => verify_one(of, asked, signature)?,
        (None, Some(mac)) => hmac::verify_one(of, asked, mac).await?,
        _ => return Err(Refusal::bad("one of 'signature' or 'hmac' must be given")),
    };
    Ok(Data::from([("valid", valid.into())]))
}

async fn sign_one(of: &KeyUse<'_>, asked: SignRequest<'_>) -> Result<Data, Refusal> {
    let call = of.call;
    let chosen = signer(of.to_make(asked.key_version())?)?;
    let marshaling = asked.marshaling()?;
    let (public, recipe, input) = (chosen.public(call)?, asked.recipe(call)?, asked.data()?);
    if chosen.shape == Shape::Ed25519 {
        // Its token reads the whole input, others read a hash.
        check_length("input", input.len())?;
    }
    let engine = call.engine();
    let target = (chosen.object, chosen.shape);
    let raw = engine.sign(target, &public, recipe, &input).await?;
    let signature = match chosen.shape {
        Shape::Ecdsa(_) => marshaling.write(&raw)?,
        _ => raw.to_vec(),
    };
    let text = SealedText::write_by(chosen.number, &signature, marshaling.base64());
    Ok(Data::from([
        ("signature", text.into()),
        ("key_version", chosen.number.into()),
    ]))
}

fn verify_one(of: &KeyUse<'_>, asked: SignRequest<'_>, signature: &str) -> Result<bool, Refusal> {
    let call = of.call;
    let marshaling = asked.marshaling()?;
    let sealed = SealedText::read_by(signature, "signature", marshaling.base64())?;
    let chosen = signer(of.to_read(sealed.version)?)?;
    let (public, recipe, input) = (chosen.public(call)?, asked.recipe(call)?, asked.data()?);
    let raw = match chosen.shape {
        Shape::Ecdsa(_) => marshaling.read(&sealed.bytes, public.signature_len()),
        _ => Some(sealed.bytes),
    };
    let Some(raw) = raw else { return Ok(false) };
    check(chosen.shape, &public, recipe, &input, &raw)
}

fn signer(chosen: ChosenVersion) -> Result<ChosenVersion, Refusal> {
    if chosen.shape.signs() {
        return Ok(chosen);
    }
    Err(Refusal::bad("keys of this type do not sign"))
}
