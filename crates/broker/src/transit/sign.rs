//! sign, verify.

use hsmux_pool::config::Action;
use hsmux_token::Hash;
use serde::Deserialize;

use super::batch::{Batch, Failures};
use super::marshal::Marshaling;
use super::named::{Chosen, Named, Use, hash};
use super::sealed::Sealed;
use super::{Data, Reply, bytes, hmac, loose};
use crate::engine::{Recipe, Scheme, verify as check};
use crate::http::Call;
use crate::key::Shape;
use crate::refusal::Refusal;

/// An item of either. The whole of a batch may say how, and an item of its own.
#[derive(Deserialize, Clone)]
pub struct Item {
    pub(super) input: Option<String>,
    signature: Option<String>,
    pub(super) hmac: Option<String>,
    pub(super) hash_algorithm: Option<String>,
    pub(super) algorithm: Option<String>,
    #[serde(default, deserialize_with = "loose::value")]
    prehashed: Option<bool>,
    signature_algorithm: Option<String>,
    marshaling_algorithm: Option<String>,
    salt_length: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "loose::value")]
    pub(super) key_version: Option<u32>,
}

impl Item {
    /// What the request says for all items holds where an item says nothing.
    pub(super) fn within(self, whole: &Self) -> Self {
        let or = |own: Option<String>, all: &Option<String>| own.or_else(|| all.clone());
        Self {
            hash_algorithm: or(self.hash_algorithm, &whole.hash_algorithm),
            algorithm: or(self.algorithm, &whole.algorithm),
            prehashed: self.prehashed.or(whole.prehashed),
            signature_algorithm: or(self.signature_algorithm, &whole.signature_algorithm),
            marshaling_algorithm: or(self.marshaling_algorithm, &whole.marshaling_algorithm),
            salt_length: self.salt_length.or_else(|| whole.salt_length.clone()),
            key_version: self.key_version.or(whole.key_version),
            ..self
        }
    }

    fn recipe(&self, call: &Call) -> Result<Recipe, Refusal> {
        let word = call.variant().or(self.hash_algorithm.as_deref());
        let word = word.or(self.algorithm.as_deref()).unwrap_or("sha2-256");
        let hash = (word != "none").then(|| hash(word)).transpose()?;
        Ok(Recipe {
            hash,
            prehashed: self.prehashed.unwrap_or(false),
            scheme: match self.signature_algorithm.as_deref() {
                None | Some("" | "pss") => Scheme::Pss(self.salt(hash)?),
                Some("pkcs1v15") => Scheme::Pkcs1,
                Some(other) => {
                    let message = format!("invalid signature_algorithm {other:?}: pss or pkcs1v15");
                    return Err(Refusal::bad(message));
                }
            },
        })
    }

    /// `auto`, `hash` (as long as this one's), or a number of bytes.
    fn salt(&self, hash: Option<Hash>) -> Result<Option<u64>, Refusal> {
        let Some(value) = &self.salt_length else {
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

    pub(super) fn data(&self) -> Result<Vec<u8>, Refusal> {
        if self.input.is_none() {
            return Err(Refusal::bad("missing input"));
        }
        bytes("input", self.input.as_deref())
    }
}

/// `sign/:name`, `sign/:name/:hash_algorithm`
pub async fn sign(mut call: Call) -> Result<Reply, Refusal> {
    call.may(Action::Sign)?;
    let batch = call.json().await.map(with_input)?;
    let key = Named::find(&call)?;
    let whole = batch.whole().clone();
    let one = async |item: Item| {
        let of = Use::new(&call, &key);
        of.run("sign", sign_one(&of, &item.within(&whole))).await
    };
    batch.answer(Failures::AreSaid, one).await
}

/// `verify/:name`, `verify/:name/:hash_algorithm`
pub async fn verify(mut call: Call) -> Result<Reply, Refusal> {
    call.may(Action::Verify)?;
    let batch = call.json().await.map(with_input)?;
    let key = Named::find(&call)?;
    let whole = batch.whole().clone();
    let one = async |item: Item| {
        let of = Use::new(&call, &key);
        of.run("verify", valid(&of, &item.within(&whole))).await
    };
    batch.answer(Failures::AreSaid, one).await
}

/// The dialect signs and verifies nothing where a request has neither input nor a batch; an item has to have one.
fn with_input(mut batch: Batch<Item>) -> Batch<Item> {
    batch.whole_mut().input.get_or_insert_default();
    batch
}

async fn valid(of: &Use<'_>, item: &Item) -> Result<Data, Refusal> {
    let valid = match (&item.signature, &item.hmac) {
        (Some(signature), None) => verify_one(of, item, signature)?,
        (None, Some(mac)) => hmac::verify_one(of, item, mac).await?,
        _ => return Err(Refusal::bad("one of 'signature' or 'hmac' must be given")),
    };
    Ok(Data::from([("valid", valid.into())]))
}

async fn sign_one(of: &Use<'_>, item: &Item) -> Result<Data, Refusal> {
    let call = of.call;
    let chosen = signer(of.to_make(item.key_version)?)?;
    let marshaling = Marshaling::of(item.marshaling_algorithm.as_deref())?;
    let (public, recipe, input) = (chosen.public(call)?, item.recipe(call)?, item.data()?);
    let engine = call.engine();
    let target = (chosen.object, chosen.shape);
    let raw = engine.sign(target, &public, recipe, &input).await?;
    let signature = match chosen.shape {
        Shape::Ecdsa(_) => marshaling.write(&raw)?,
        _ => raw.to_vec(),
    };
    let text = Sealed::write_by(chosen.number, &signature, marshaling.base64());
    Ok(Data::from([
        ("signature", text.into()),
        ("key_version", chosen.number.into()),
    ]))
}

fn verify_one(of: &Use<'_>, item: &Item, signature: &str) -> Result<bool, Refusal> {
    let call = of.call;
    let marshaling = Marshaling::of(item.marshaling_algorithm.as_deref())?;
    let sealed = Sealed::read_by(signature, "signature", marshaling.base64())?;
    let chosen = signer(of.to_read(sealed.version)?)?;
    let (public, recipe, input) = (chosen.public(call)?, item.recipe(call)?, item.data()?);
    let raw = match chosen.shape {
        Shape::Ecdsa(_) => marshaling.read(&sealed.bytes, public.signature_len()),
        _ => Some(sealed.bytes),
    };
    let Some(raw) = raw else { return Ok(false) };
    check(chosen.shape, &public, recipe, &input, &raw)
}

fn signer(chosen: Chosen) -> Result<Chosen, Refusal> {
    if chosen.shape.signs() {
        return Ok(chosen);
    }
    Err(Refusal::bad("keys of this type do not sign"))
}
