//! hmac, and its part of verify.

use std::pin::pin;

use hsmux_config::Action;
use subtle::ConstantTimeEq;

use super::batch::{Batch, Failures};
use super::requested_key::{ChosenVersion, KeyUse, RequestedKey};
use super::sealed_text::SealedText;
use super::sign::{SignItem, SignRequest};
use super::{Data, Reply, check_length};
use crate::engine::HmacMechanism;
use crate::http::ApiCall;
use crate::key::Shape;
use crate::refusal::Refusal;

/// `hmac/:name`, `hmac/:name/:algorithm`
pub async fn hmac(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Hmac)?;
    let batch: Batch<SignItem> = call.json().await?;
    let key = RequestedKey::find(&call)?;
    let whole = batch.whole().words();
    let one = async |item: SignItem| {
        let of = KeyUse::new(&call, &key);
        let work = pin!(hmac_one(&of, item.within(&whole)));
        of.run("hmac", work).await
    };
    batch.answer(Failures::AreSaid, call.admitted(), one).await
}

async fn hmac_one(of: &KeyUse<'_>, asked: SignRequest<'_>) -> Result<Data, Refusal> {
    let chosen = keyed(of.to_make(asked.key_version())?)?;
    let (mac, input) = (algorithm(of.call, asked)?, asked.data()?);
    check_length("input", input.len())?;
    let mac = of.call.engine().hmac(chosen.object, mac, input);
    let text = SealedText::write(chosen.number, &mac.await?);
    Ok(Data::from([
        ("hmac", text.into()),
        ("key_version", chosen.number.into()),
    ]))
}

/// Verifies an HMAC of this key over this data: makes it anew and compares in constant time.
pub(super) async fn verify_one(
    of: &KeyUse<'_>,
    asked: SignRequest<'_>,
    mac: &str,
) -> Result<bool, Refusal> {
    let sealed = SealedText::read_by(mac, "hmac", &base64::engine::general_purpose::STANDARD)?;
    let chosen = keyed(of.to_read(sealed.version)?)?;
    let (mac, input) = (algorithm(of.call, asked)?, asked.data()?);
    check_length("input", input.len())?;
    let expected = of.call.engine().hmac(chosen.object, mac, input);
    Ok(expected.await?.ct_eq(&sealed.bytes).into())
}

fn algorithm(call: &ApiCall, asked: SignRequest<'_>) -> Result<HmacMechanism, Refusal> {
    let word = call.variant().or(asked.algorithm());
    HmacMechanism::of(word.or(asked.hash_algorithm()).unwrap_or("sha2-256"))
}

fn keyed(chosen: ChosenVersion) -> Result<ChosenVersion, Refusal> {
    if chosen.shape == Shape::Hmac {
        return Ok(chosen);
    }
    Err(Refusal::bad(
        "keys of this type make no HMAC: no second key is made beside them; create a key of type hmac",
    ))
}
