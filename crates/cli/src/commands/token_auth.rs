//! `hsmux token-auth`: tokens of the broker's clients.

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use hsmux_broker::auth;
use hsmux_broker::store::Store;
use hsmux_daemon::admin::LocalAction;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Commands for clients' tokens.
#[derive(Subcommand, Debug)]
pub enum TokenAuth {
    /// Create a token and print it; it is shown only once
    Create(Create),
    /// List tokens, without their secrets
    #[command(after_help = "Example:\n  hsmux token-auth list")]
    List,
    /// Revoke a token by its id, or all tokens of a name
    Revoke(Revoke),
}

/// Options of `hsmux token-auth create`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hsmux token-auth create billing --expires 720h")]
pub struct Create {
    /// The owner: policies name it token:NAME
    name: String,
    /// The time until it expires [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Duration>,
}

/// Options of `hsmux token-auth revoke`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hsmux token-auth revoke billing")]
pub struct Revoke {
    /// Its id, or the name of its owners
    which: String,
}

impl TokenAuth {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let config = context.load()?;
        let section = config.broker.as_ref().ok_or_else(|| {
            Exit::Usage.because(format!(
                "{}: there is no [broker]; hsmux config example --full shows one",
                context.file().display()
            ))
        })?;
        let store = Store::open_shared(&section.store).map_err(|error| {
            if section.store.parent().is_none_or(Path::exists) {
                return error.into();
            }
            anyhow::anyhow!("{error}; the daemon makes this folder: hsmux serve")
        })?;
        match self {
            Self::Create(create) => create.run(context, &store),
            Self::List => list(context, &store),
            Self::Revoke(revoke) => revoke.run(context, &store),
        }
    }
}

impl Create {
    fn run(self, context: &Context, store: &Store) -> anyhow::Result<Exit> {
        let new = auth::issue(&self.name, self.expires)?;
        let action = LocalAction::TokenAuthCreate {
            id: new.kept.id.clone(),
            name: new.kept.name.clone(),
            expires: new.kept.expires,
        };
        context.recorded(&action, || Ok(store.put_token(&new.kept)?))?;
        let (id, name, expires) = (new.kept.id, new.kept.name, new.kept.expires);
        let token = String::from_utf8_lossy(new.secret.expose());
        if context.json {
            output::json(
                &serde_json::json!({ "token": token, "id": id, "name": name, "expires": expires }),
            )?;
        } else {
            println!("{token}");
        }
        Ok(Exit::Done)
    }
}

impl Revoke {
    fn run(self, context: &Context, store: &Store) -> anyhow::Result<Exit> {
        let meant = store.tokens()?.into_iter();
        let meant = meant.filter(|token| token.id == self.which || token.name == self.which);
        let action = LocalAction::TokenAuthRevoke {
            which: self.which.clone(),
            ids: meant.map(|token| token.id).collect(),
        };
        let gone = context
            .recorded(&action, || Ok(store.revoke(&self.which)?))?
            .len();
        if context.json {
            output::json(&serde_json::json!({ "revoked": gone }))?;
        } else {
            println!("{gone} revoked");
        }
        Ok(Exit::Done)
    }
}

fn list(context: &Context, store: &Store) -> anyhow::Result<Exit> {
    let tokens = store.tokens()?;
    if context.json {
        output::json(&tokens)?;
        return Ok(Exit::Done);
    }
    let rows = tokens.into_iter().map(|token| {
        let expires = match token.expires {
            Some(at) if token.is_valid() => at.to_string(),
            Some(_) => "expired".into(),
            None => "never".into(),
        };
        vec![token.id, token.name, token.created.to_string(), expires]
    });
    let columns = [
        output::Column::whole("ID"),
        output::Column::whole("NAME"),
        output::Column::whole("CREATED"),
        output::Column::whole("EXPIRES"),
    ];
    output::table(&columns, rows);
    Ok(Exit::Done)
}

/// `90s`, `15m`, `720h`, `30d`.
fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if lifetime.is_zero() {
        return Err("it would expire at once".into());
    }
    Ok(lifetime)
}
