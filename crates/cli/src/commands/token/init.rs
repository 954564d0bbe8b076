//! `hsmux token init`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use hsmux_daemon::admin::Deed;
use hsmux_module::{Options, init_token, slots};
use hsmux_token::{TokenFlags, Uri};

use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::pin::PinArg;

/// Options of `hsmux token init`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux token init --module /usr/lib/softhsm/libsofthsm2.so --label hsm5 \\\n    \
      --so-pin file:so.pin --pin file:hsm5.pin")]
pub struct Init {
    /// The vendor's PKCS#11 module
    #[arg(long, value_name = "FILE")]
    module: PathBuf,
    /// The label that the token is to have
    #[arg(long)]
    label: String,
    /// Which token, as a PKCS#11 URI [default: the first that is not initialised]
    #[arg(long)]
    uri: Option<Uri>,
    /// The security officer's PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    so_pin: PinArg,
    /// The user's PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    pin: PinArg,
    /// Erase a token that is initialised already, with all its keys
    #[arg(long)]
    erase: bool,
    /// The folder of the PIN breaker [default: the configuration's, else /var/lib/hsmux or the
    /// user's own]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

impl Init {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (slot, erased) = self.slot()?;
        let so_pin = self.so_pin.read("security officer's PIN")?;
        let state = self.state.map_or_else(|| context.state(), Ok)?;
        let deed = Deed::TokenInit {
            module: self.module.clone(),
            label: self.label.clone(),
            erased,
        };
        let options = Options {
            module: self.module,
            slot,
            pin: Some(self.pin.read("user's PIN")?),
            sessions: 1,
            state,
            name: self.label.clone(),
            copies: None,
            member: None,
        };
        let token = context.recorded(&deed, || Ok(init_token(&options, &self.label, &so_pin)?))?;
        if context.json {
            output::json(&serde_json::json!({ "label": token.label, "serial": token.serial }))?;
        } else {
            println!(
                "token {:?} is initialised, serial number {}",
                token.label, token.serial
            );
        }
        Ok(Exit::Done)
    }

    /// The slot that is meant, and the serial number of the token that is erased; one that holds keys only with
    /// `--erase`.
    fn slot(&self) -> anyhow::Result<(Uri, Option<String>)> {
        let slots = slots(&self.module)?;
        let initialised = |flags: TokenFlags| flags.contains(TokenFlags::TOKEN_INITIALIZED);
        let found = match &self.uri {
            None => slots.iter().find(|slot| !initialised(slot.token.flags)),
            Some(uri) => slots
                .iter()
                .find(|slot| uri.matches_token(&slot.token, Some(slot.id))),
        };
        let found = found.with_context(|| {
            let module = self.module.display();
            match &self.uri {
                None => format!("{module}: no token that is not initialised; name one with --uri"),
                Some(uri) => format!("{module}: no token matches {uri}"),
            }
        })?;
        if initialised(found.token.flags) && !self.erase {
            return Err(Exit::Usage.because(format!(
                "token {:?} is initialised already; --erase deletes it with all its keys",
                found.token.label
            )));
        }
        let slot = Uri {
            slot_id: Some(found.id),
            ..Uri::default()
        };
        let erased = initialised(found.token.flags).then(|| found.token.serial.clone());
        Ok((slot, erased))
    }
}
