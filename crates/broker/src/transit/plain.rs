//! random, hash: what needs no key.

use std::pin::pin;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hsmux_config::Action;
use hsmux_software::digest;
use hsmux_token::Operation;
use serde::Deserialize;
use serde_json::Value;

use super::requested_key::hash as algorithm;
use super::{Reply, bytes, loose};
use crate::http::{ApiCall, UseDetails};
use crate::refusal::Refusal;

#[derive(Deserialize)]
struct PlainBody {
    input: Option<String>,
    algorithm: Option<String>,
    format: Option<String>,
    #[serde(default, deserialize_with = "loose::value")]
    bytes: Option<u32>,
}

/// The most random bytes of one request (the dialect's own limit).
const MOST_RANDOM: u32 = 128 * 1024;

/// The dialect's sources of random bytes; here all of them mean a token.
const SOURCES: [&str; 3] = ["platform", "seal", "all"];

/// `random`, `random/:bytes`, `random/:source`, `random/:source/:bytes`
pub async fn random(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Random)?;
    let body: PlainBody = call.json().await?;
    let (source, number) = match (call.source(), call.variant()) {
        (None, Some(word)) if SOURCES.contains(&word) => (Some(word), None),
        both => both,
    };
    if let Some(other) = source.filter(|word| !SOURCES.contains(word)) {
        let message = format!(
            "unsupported source {other:?}; there are {}",
            SOURCES.join(", ")
        );
        return Err(Refusal::bad(message));
    }
    let wrong = |word| {
        Refusal::bad(format!(
            "{word:?} is no number of bytes up to {MOST_RANDOM}"
        ))
    };
    let number = number.map(|word| word.parse().map_err(|_| wrong(word)));
    let len = number.transpose()?.or(body.bytes).unwrap_or(32);
    if len == 0 || len > MOST_RANDOM {
        return Err(Refusal::bad(format!(
            "\"bytes\" is from 1 to {MOST_RANDOM}"
        )));
    }
    let made = pin!(async {
        let made = call.engine().run(Operation::Random { len }).await?;
        written(
            &made.into_bytes()?,
            body.format.as_deref().unwrap_or("base64"),
        )
    });
    let text = call.using("random", &UseDetails::default(), made).await?;
    Ok(Reply::ok([("random_bytes", text)]))
}

/// `hash`, `hash/:algorithm`
pub async fn hash(mut call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Hash)?;
    let body: PlainBody = call.json().await?;
    let word = call
        .variant()
        .or(body.algorithm.as_deref())
        .unwrap_or("sha2-256");
    let made = pin!(async {
        let input = body.input.as_deref();
        let input = input.ok_or_else(|| Refusal::bad("missing input"))?;
        let sum = digest(algorithm(word)?, &bytes("input", Some(input))?);
        written(&sum, body.format.as_deref().unwrap_or("hex"))
    });
    let text = call.using("hash", &UseDetails::default(), made).await?;
    Ok(Reply::ok([("sum", text)]))
}

fn written(bytes: &[u8], format: &str) -> Result<Value, Refusal> {
    match format {
        "hex" => Ok(hex::encode(bytes).into()),
        "base64" => Ok(STANDARD.encode(bytes).into()),
        other => Err(Refusal::bad(format!(
            "unsupported encoding format {other:?}: hex or base64"
        ))),
    }
}
