//! Keys: create, read, list, delete, config, rotate, trim.

use std::sync::Arc;

use axum::http::StatusCode;
use hsmux_config::Action;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Data, Reply, key_view, loose};
use crate::engine::is_external;
use crate::http::ApiCall;
use crate::key::{KeyName, KeySettings, KeyType, ManagedKey};
use crate::refusal::Refusal;

/// The dialect's fields that hsmux does not support, since keys never leave their tokens.
#[derive(Deserialize)]
struct UnsupportedFields {
    #[serde(default, deserialize_with = "loose::value")]
    exportable: Option<bool>,
    #[serde(default, deserialize_with = "loose::value")]
    allow_plaintext_backup: Option<bool>,
    #[serde(default, deserialize_with = "loose::value")]
    derived: Option<bool>,
    #[serde(default, deserialize_with = "loose::value")]
    convergent_encryption: Option<bool>,
    auto_rotate_period: Option<Value>,
}

impl UnsupportedFields {
    fn refuse(&self) -> Result<(), Refusal> {
        let fields = [
            (self.exportable, "exportable: keys never leave the tokens"),
            (
                self.allow_plaintext_backup,
                "allow_plaintext_backup: keys never leave the tokens",
            ),
            (
                self.derived,
                "derived: tokens do not derive keys this way; make a key for each context",
            ),
            (
                self.convergent_encryption,
                "convergent_encryption: nonces are new and random each time",
            ),
            (
                self.auto_rotate_period
                    .as_ref()
                    .map(|period| !is_zero(period)),
                "auto_rotate_period: ask for keys/NAME/rotate by a timer of your own",
            ),
        ];
        let wanted = fields.into_iter().find(|(field, _)| *field == Some(true));
        wanted.map_or(Ok(()), |(_, why)| {
            Err(Refusal::bad(format!("not supported: {why}")))
        })
    }
}

/// `0`, `"0"`, `"0s"`.
fn is_zero(period: &Value) -> bool {
    let text = period
        .as_str()
        .map_or_else(|| period.to_string(), str::to_owned);
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    number.chars().all(|c| c == '0')
}

/// `POST keys/:name`
pub async fn create(mut call: ApiCall) -> Result<Reply, Refusal> {
    #[derive(Deserialize)]
    struct CreateBody {
        #[serde(rename = "type")]
        kind: Option<String>,
        #[serde(default, deserialize_with = "loose::value")]
        key_size: Option<u32>,
        #[serde(flatten)]
        unwanted: UnsupportedFields,
    }
    call.may(Action::Create)?;
    let body: CreateBody = call.json().await?;
    body.unwanted.refuse()?;
    let word = body.kind.as_deref().filter(|word| !word.is_empty());
    let kind: KeyType = word
        .unwrap_or(KeyType::DEFAULT)
        .parse()
        .map_err(Refusal::bad)?;
    if body
        .key_size
        .is_some_and(|bytes| bytes > 0 && Some(bytes) != kind.key_size())
    {
        let message = match kind.key_size() {
            Some(bytes) => format!("key_size: keys of the type {kind} have {bytes} bytes"),
            None => format!("key_size is for the type hmac, not for {kind}"),
        };
        return Err(Refusal::bad(message));
    }
    let name: KeyName = call.key().parse().map_err(Refusal::bad)?;
    let engine = Arc::clone(call.engine());
    let what = Data::from([("type", kind.word().into())]);
    let making = async move { engine.create(&name, kind).await };
    let key = call.act("broker-key-create", what, making).await?;
    Ok(Reply::ok(key_view::managed(call.engine(), &key)))
}

/// `GET keys/:name`
pub fn read(call: &ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Read)?;
    // The dialect answers 404 without a message.
    let missing = || Refusal {
        message: None,
        ..Refusal::no_key()
    };
    if is_external(call.key()) {
        let key = call.engine().external(call.key());
        let key = key.map_err(|refusal| match refusal.status {
            StatusCode::NOT_FOUND => missing(),
            _ => refusal,
        })?;
        return Ok(Reply::ok(key_view::external(
            call.engine(),
            call.key(),
            &key,
        )));
    }
    let key = call.engine().key(call.key()).ok_or_else(missing)?;
    Ok(Reply::ok(key_view::managed(call.engine(), &key)))
}

/// `LIST keys`, `GET keys?list=true`, with `after` and `limit`: the keys with which the client may do anything.
pub fn list(call: &ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::List)?;
    let limit = call
        .query("limit")
        .and_then(|text| text.parse::<usize>().ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let after = call.query("after").unwrap_or_default();
    let (policy, client) = (call.broker().policy.load(), call.client());
    let names = (call.engine()).names(after, limit, |name| policy.names(client, name));
    if names.is_empty() {
        return Err(Refusal {
            status: StatusCode::NOT_FOUND,
            message: None,
            retry_after: None,
        });
    }
    Ok(Reply::ok([("keys", names.into())]))
}

/// `DELETE keys/:name`
pub async fn delete(call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Delete)?;
    let (engine, name) = (Arc::clone(call.engine()), call.key().to_owned());
    let work = async move { engine.delete(&name).await };
    call.act("broker-key-delete", Data::default(), work).await?;
    Ok(Reply::Nothing)
}

/// `POST keys/:name/config`
pub async fn config(mut call: ApiCall) -> Result<Reply, Refusal> {
    #[derive(Deserialize)]
    struct ConfigBody {
        #[serde(default, deserialize_with = "loose::value")]
        min_decryption_version: Option<u32>,
        #[serde(default, deserialize_with = "loose::value")]
        min_encryption_version: Option<u32>,
        #[serde(default, deserialize_with = "loose::value")]
        deletion_allowed: Option<bool>,
        #[serde(flatten)]
        unwanted: UnsupportedFields,
    }
    call.may(Action::Config)?;
    let body: ConfigBody = call.json().await?;
    body.unwanted.refuse()?;
    let (engine, name) = (Arc::clone(call.engine()), call.key().to_owned());
    let what = Data::from([
        ("min_decryption_version", json!(body.min_decryption_version)),
        ("min_encryption_version", json!(body.min_encryption_version)),
        ("deletion_allowed", json!(body.deletion_allowed)),
    ]);
    let change = move |key: &ManagedKey| {
        let old = key.settings;
        let settings = KeySettings {
            // The dialect's 0 means the first.
            min_decryption: body
                .min_decryption_version
                .map_or(old.min_decryption, |v| v.max(1)),
            min_encryption: body.min_encryption_version.unwrap_or(old.min_encryption),
            deletion_allowed: body.deletion_allowed.unwrap_or(old.deletion_allowed),
            ..old
        };
        sensible(key, settings)
    };
    let work = async move { engine.configure(&name, change).await };
    let key = call.act("broker-key-config", what, work).await?;
    Ok(Reply::ok(key_view::managed(call.engine(), &key)))
}

/// `POST keys/:name/rotate`
pub async fn rotate(call: ApiCall) -> Result<Reply, Refusal> {
    call.may(Action::Rotate)?;
    let (engine, name) = (Arc::clone(call.engine()), call.key().to_owned());
    let work = async move { engine.rotate(&name).await };
    let key = call.act("broker-key-rotate", Data::default(), work).await?;
    Ok(Reply::ok(key_view::managed(call.engine(), &key)))
}

/// `POST keys/:name/trim`
pub async fn trim(mut call: ApiCall) -> Result<Reply, Refusal> {
    #[derive(Deserialize)]
    struct TrimBody {
        #[serde(default, deserialize_with = "loose::value")]
        min_available_version: Option<u32>,
    }
    call.may(Action::Trim)?;
    let body: TrimBody = call.json().await?;
    let min = body
        .min_available_version
        .ok_or_else(|| Refusal::bad("missing min_available_version"))?;
    let (engine, name) = (Arc::clone(call.engine()), call.key().to_owned());
    let work = async move { engine.trim(&name, min).await };
    let what = Data::from([("min_available_version", min.into())]);
    let key = call.act("broker-key-trim", what, work).await?;
    Ok(Reply::ok(key_view::managed(call.engine(), &key)))
}

fn sensible(key: &ManagedKey, settings: KeySettings) -> Result<KeySettings, Refusal> {
    let (decryption, encryption) = (settings.min_decryption, settings.min_encryption);
    let latest = key.latest();
    let wrong = if decryption > latest {
        format!("cannot set min decryption version of {decryption}, latest key version is {latest}")
    } else if encryption > latest {
        format!("cannot set min encryption version of {encryption}, latest key version is {latest}")
    } else if encryption > 0 && encryption < decryption {
        format!(
            "cannot set min encryption version of {encryption}, min decryption version is {decryption}"
        )
    } else if decryption.min(encryption) < settings.min_available {
        format!("versions below {} are trimmed", settings.min_available)
    } else {
        return Ok(settings);
    };
    Err(Refusal::bad(wrong))
}
