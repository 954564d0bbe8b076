//! `hsmux node ca init`, and the authority that the other commands use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hsmux_console::pool;
use hsmux_module::{ModuleToken, Options};
use hsmux_node::ca::{Authority, TokenKeyRef, new_name};
use hsmux_token::{Token, Uri};
use humantime::parse_duration;
use serde_json::json;

use crate::commands::key::KeyParts;
use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::pin::PinArg;

/// The location of the authority.
#[derive(Args, Debug)]
pub struct AuthorityLocation {
    /// The authority's folder
    #[arg(long, value_name = "FOLDER", default_value = "ca")]
    pub ca: PathBuf,
}

/// The authority with its signing key.
#[derive(Args, Debug)]
pub struct AuthoritySigning {
    #[command(flatten)]
    at: AuthorityLocation,

    /// The PIN of the token with the authority's key, if any: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE")]
    pin: Option<PinArg>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux node ca init --ca /root/ca --name 'web cluster'\n  \
    hsmux node ca init --key pkcs11:token=ca --label ca --module /usr/lib/softhsm/libsofthsm2.so \\\n    \
      --pin file:ca.pin\n\n\
    The folder has the private key, ca.key, unless that is in a token. Keep it on a machine without access to\n\
    the cluster. hsmux node enroll writes all files for a host, including the authority's certificate.")]
pub struct AuthorityInit {
    #[command(flatten)]
    signing: AuthoritySigning,

    /// The name in its certificate, unique among the hosts' authorities [default: hsmux nodes, and random digits]
    #[arg(long)]
    name: Option<String>,

    /// The lifetime of its certificate
    #[arg(long, value_name = "TIME", default_value = "3650d", value_parser = parse_duration)]
    life: Duration,

    /// A private key in a token, P-256, P-384, RSA or Ed25519 [default: a new key in a file]
    #[arg(long, value_name = "URI")]
    key: Option<Uri>,

    #[command(flatten)]
    parts: KeyParts,

    /// The vendor's PKCS#11 module of that token [default: the key is in the pool, through its daemon]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

/// The warning for an authority's key in the pool, whose users are not supposed to issue certificates.
const IN_POOL: &str = "hsmux: every program and every [[peer]] that sees this key in the pool can issue certificates of \
                       any name with it: give each listener and each [[peer]] `keys` without it, or have it in a token \
                       that is no member (--module)";

impl AuthorityInit {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let folder = &self.signing.at.ca;
        let key = self.parts.with(self.key.as_ref())?;
        if key.is_none() && self.module.is_some() {
            let why = "--module is where a key is: name the key by --key, --label or --id";
            return Err(Exit::Usage.because(why));
        }
        let in_pool = key.is_some() && self.module.is_none();
        let place = key.map(|key| TokenKeyRef {
            uri: key.to_string(),
            module: self.module,
        });
        let key = place.map(|place| {
            let token = self.signing.token(context, &place)?;
            anyhow::Ok((place, token))
        });
        let key = key.transpose()?;
        let in_token = key.is_some();
        let name = self.name.map_or_else(new_name, Ok)?;
        Authority::init(folder, &name, self.life, key)?;
        if in_pool {
            eprintln!("{IN_POOL}");
        }
        if context.json {
            output::json(&json!({ "folder": folder, "certificate": folder.join("ca.pem") }))?;
        } else if in_token {
            println!(
                "{}: an authority; its key is in the token",
                folder.display()
            );
        } else {
            println!("{}: an authority; ca.key stays there", folder.display());
        }
        Ok(Exit::Done)
    }
}

impl AuthoritySigning {
    /// Opens it, and the token with its key.
    pub fn open(&self, context: &Context) -> anyhow::Result<Authority> {
        let authority = Authority::open(&self.at.ca)?;
        Ok(match authority.place()? {
            Some(place) => authority.with(self.token(context, &place)?),
            None => authority,
        })
    }

    fn token(&self, context: &Context, place: &TokenKeyRef) -> anyhow::Result<Arc<dyn Token>> {
        let pin = |whose: &str| self.pin.as_ref().map(|pin| pin.read(whose)).transpose();
        let Some(module) = &place.module else {
            return pool::connect(&context.draft()?.config, pin("the pool's PIN")?);
        };
        let asked = PinArg::Prompt;
        let pin = self.pin.as_ref().unwrap_or(&asked);
        Ok(ModuleToken::open(Options {
            module: module.clone(),
            slot: place.uri.parse()?,
            pin: Some(pin.read("PIN of the authority's token")?),
            sessions: 1,
            state: context.state()?,
            name: "the authority's token".to_owned(),
            copies: None,
            member: None,
            uri: None,
        })?)
    }
}
