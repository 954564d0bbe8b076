//! encrypt, decrypt, rewrap, datakey.

use std::pin::pin;

use hsmux_config::Action;
use hsmux_token::Operation;
use serde::Deserialize;

use super::batch::{Batch, Failures};
use super::requested_key::{CipherOptions, KeyUse, RequestedKey};
use super::sealed_text::SealedText;
use super::{Data, Reply, base64, bytes, check_length, loose};
use crate::http::ApiCall;
use crate::random::{Nonce, nonces};
use crate::refusal::Refusal;

/// An item of any of them. The dialect's other fields (`context`, `type`) are for derived and convergent keys, which
/// hsmux does not make.
#[derive(Deserialize)]
pub struct CryptItem {
    plaintext: Option<String>,
    ciphertext: Option<String>,
    associated_data: Option<String>,
    #[serde(default, deserialize_with = "loose::value")]
    key_version: Option<u32>,
    nonce: Option<String>,
    padding_scheme: Option<String>,
    oaep_hash: Option<String>,
    mode: Option<String>,
    /// The nonce of an item, by its position in the batch.
    #[serde(skip)]
    drawn: Option<Nonce>,
}

impl CryptItem {
    fn choice(&self) -> CipherOptions<'_> {
        CipherOptions {
            padding: self.padding_scheme.as_deref(),
            oaep_hash: self.oaep_hash.as_deref(),
            mode: self.mode.as_deref(),
        }
    }

    fn aad(&self) -> Result<Vec<u8>, Refusal> {
        if self.nonce.as_ref().is_some_and(|nonce| !nonce.is_empty()) {
            return Err(Refusal::bad(
                "nonce: it is made here, and new each time; leave it out",
            ));
        }
        bytes("associated_data", self.associated_data.as_deref())
    }
}

/// `encrypt/:name`
pub async fn encrypt(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Encrypt)?;
    let batch = with_nonces(call.json().await?)?;
    let key = RequestedKey::find(&call)?;
    let one = async |item: CryptItem| {
        let of = KeyUse::new(&call, &key);
        let work = pin!(encrypt_one(&of, item));
        of.run("encrypt", work).await
    };
    batch.answer(Failures::Decide, call.admitted(), one).await
}

/// `decrypt/:name`
pub async fn decrypt(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Decrypt)?;
    let batch: Batch<CryptItem> = call.json().await?;
    let key = RequestedKey::find(&call)?;
    let one = async |item: CryptItem| {
        let of = KeyUse::new(&call, &key);
        let work = pin!(async {
            let plaintext = open(&of, &item, Action::Decrypt).await?;
            Ok(Data::from([("plaintext", base64(&plaintext))]))
        });
        of.run("decrypt", work).await
    };
    batch.answer(Failures::Decide, call.admitted(), one).await
}

/// `rewrap/:name`
pub async fn rewrap(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Rewrap)?;
    let batch = with_nonces(call.json().await?)?;
    let key = RequestedKey::find(&call)?;
    let one = async |item: CryptItem| {
        let of = KeyUse::new(&call, &key);
        let work = pin!(async {
            let plaintext = open(&of, &item, Action::Rewrap).await?;
            seal(&of, &item, plaintext).await
        });
        of.run("rewrap", work).await
    };
    batch.answer(Failures::AreSaid, call.admitted(), one).await
}

/// `datakey/plaintext/:name`, `datakey/wrapped/:name`
pub async fn datakey(mut call: ApiCall) -> Result<Reply, Refusal> {
    #[derive(Deserialize)]
    struct DatakeyBody {
        #[serde(default, deserialize_with = "loose::value")]
        bits: Option<u32>,
        #[serde(flatten)]
        item: CryptItem,
    }
    let shown = match call.variant() {
        Some("plaintext") => true,
        Some("wrapped") => false,
        _ => {
            return Err(Refusal::bad(
                "Invalid path, must be 'plaintext' or 'wrapped'",
            ));
        }
    };
    call.may(if shown {
        Action::Datakey
    } else {
        Action::WrappedDatakey
    })?;
    let body: DatakeyBody = call.json().await?;
    let len = match body.bits.unwrap_or(256) {
        bits @ (128 | 256 | 512) => bits / 8,
        bits => {
            return Err(Refusal::bad(format!(
                "invalid bit length {bits}: 128, 256 or 512"
            )));
        }
    };
    let key = RequestedKey::find(&call)?;
    let of = KeyUse::new(&call, &key);
    let made = pin!(async {
        let random = call.engine().run(Operation::Random { len }).await?;
        let random = random.into_bytes()?;
        let mut answer = seal(&of, &body.item, random.clone()).await?;
        if shown {
            answer.add("plaintext", base64(&random));
        }
        Ok(answer)
    });
    Ok(Reply::ok(of.run("datakey", made).await?))
}

/// Draws the nonces of a batch at once. Each stays with its item and so with one text, in any order of work.
fn with_nonces(mut batch: Batch<CryptItem>) -> Result<Batch<CryptItem>, Refusal> {
    let items = batch.entries_mut();
    let drawn = nonces(items.len())?;
    for (item, nonce) in items.zip(drawn) {
        item.drawn = Some(nonce);
    }
    Ok(batch)
}

async fn encrypt_one(of: &KeyUse<'_>, item: CryptItem) -> Result<Data, Refusal> {
    let Some(text) = &item.plaintext else {
        return Err(Refusal::bad("missing plaintext to encrypt"));
    };
    let plaintext = bytes("plaintext", Some(text))?;
    seal(of, &item, plaintext.into()).await
}

async fn seal(of: &KeyUse<'_>, item: &CryptItem, plaintext: bytes::Bytes) -> Result<Data, Refusal> {
    let aad = item.aad()?;
    check_length("plaintext", plaintext.len() + aad.len())?;
    let chosen = of.to_make(item.key_version)?;
    let target = chosen.target(of, &item.choice(), Action::Encrypt).await?;
    let sealed = of
        .call
        .engine()
        .encrypt(&target, plaintext, &aad, item.drawn)
        .await?;
    Ok(Data::from([
        (
            "ciphertext",
            SealedText::write(chosen.number, &sealed).into(),
        ),
        ("key_version", chosen.number.into()),
    ]))
}

async fn open(of: &KeyUse<'_>, item: &CryptItem, action: Action) -> Result<bytes::Bytes, Refusal> {
    let Some(text) = &item.ciphertext else {
        return Err(Refusal::bad("missing ciphertext to decrypt"));
    };
    let sealed = SealedText::read(text)?;
    let aad = item.aad()?;
    check_length("ciphertext", sealed.bytes.len() + aad.len())?;
    let chosen = of.to_read(sealed.version)?;
    let target = chosen.target(of, &item.choice(), action).await?;
    of.call.engine().decrypt(&target, sealed.bytes, &aad).await
}
