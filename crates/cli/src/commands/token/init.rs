//! `hsmux token init`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use hsmux_daemon::admin::LocalAction;
use hsmux_module::{Options, SlotInfo, init_token};
use hsmux_token::Uri;

use super::{erase, slots_of};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::pin::PinArg;

/// Options of `hsmux token init`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux token init --module /usr/lib/softhsm/libsofthsm2.so --label hsm5 \\\n    \
      --so-pin file:so.pin --pin file:hsm5.pin\n  \
    hsmux token init --module /usr/lib/softhsm/libsofthsm2.so --label hsm5 \\\n    \
      --uri pkcs11:serial=0a1b2c --erase\n\n\
    The command asks for the label before it erases a token, unless --yes is given. It refuses a member of the\n\
    running daemon, unless --force is given.")]
pub struct TokenInit {
    /// The vendor's PKCS#11 module
    #[arg(long, value_name = "FILE")]
    module: PathBuf,
    /// The new label of the token
    #[arg(long)]
    label: String,
    /// The token, as a PKCS#11 URI [default: the first uninitialised one]
    #[arg(long)]
    uri: Option<Uri>,
    /// The security officer's PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    so_pin: PinArg,
    /// The user's PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    pin: PinArg,
    /// Erase an initialised token, with all its keys
    #[arg(long)]
    erase: bool,
    /// Do not ask for confirmation before a token is erased, and allow two tokens with the same label
    #[arg(long)]
    yes: bool,
    /// Erase even a member of the running daemon
    #[arg(long, requires = "erase")]
    force: bool,
    /// The folder of the PIN breaker [default: the configuration's, else /var/lib/hsmux or the user's own]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

impl TokenInit {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (found, others) = self.found(context)?;
        self.keep_labels_apart(&others)?;
        let slot = selector(&found);
        let erased = found.is_initialised().then(|| found.token.serial.clone());
        if erased.is_some() {
            if !self.force {
                erase::spare_member(context, &self.module, &found)?;
            }
            erase::confirm(self.yes, &self.module, &found, &slot)?;
        }
        let so_pin = self.so_pin.read("security officer's PIN")?;
        let state = self.state.map_or_else(|| context.state(), Ok)?;
        let action = LocalAction::TokenInit {
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
            uri: None,
        };
        let token =
            context.recorded(&action, || Ok(init_token(&options, &self.label, &so_pin)?))?;
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

    /// The selected slot, and the module's others. An initialised token is selected only with `--erase`.
    fn found(&self, context: &Context) -> anyhow::Result<(SlotInfo, Vec<SlotInfo>)> {
        let mut slots = slots_of(context, &self.module)?;
        let module = self.module.display();
        let at = match &self.uri {
            None => slots
                .iter()
                .position(|slot| !slot.is_initialised())
                .with_context(|| {
                    format!(
                        "{module}: no token that is not initialised; name one with --uri: \
                         hsmux token list --module {module} lists all"
                    )
                })?,
            Some(uri) => {
                let fits = |at: &usize| slots[*at].fits(uri);
                match (0..slots.len()).filter(fits).collect::<Vec<_>>()[..] {
                    [] => anyhow::bail!(
                        "{module}: no token matches {uri}; hsmux token list --module {module} lists all"
                    ),
                    [at] => at,
                    ref several => {
                        let several = several.iter().map(|at| &slots[*at]).collect::<Vec<_>>();
                        return Err(Exit::Usage.because(ambiguous(&self.module, uri, &several)));
                    }
                }
            }
        };
        let found = slots.swap_remove(at);
        if found.is_initialised() && !self.erase {
            return Err(Exit::Usage.because(format!(
                "token {:?} is initialised already; --erase deletes it with all its keys",
                found.token.label
            )));
        }
        Ok((found, slots))
    }

    /// Refuses the label of another token unless `--yes`: a member's URI would match both.
    fn keep_labels_apart(&self, others: &[SlotInfo]) -> anyhow::Result<()> {
        let mut others = others.iter().filter(|other| other.is_initialised());
        let Some(other) = others.find(|other| other.token.label == self.label) else {
            return Ok(());
        };
        let uri = Uri {
            token: Some(self.label.clone()),
            ..Uri::default()
        };
        let why = format!(
            "{other} has this label already: {uri} would mean two tokens, and members with that URI would not connect"
        );
        if self.yes {
            eprintln!("note: {why}");
            return Ok(());
        }
        let advice = "nothing was done. Choose another --label, or add --yes";
        Err(Exit::Usage.because(format!("{why}; {advice}")))
    }
}

/// A selector for this token only: slot numbers may change during the confirmation.
fn selector(slot: &SlotInfo) -> Uri {
    let initialised = |text: &String| slot.is_initialised().then(|| text.clone());
    Uri {
        slot_id: Some(slot.id),
        token: initialised(&slot.token.label),
        serial: initialised(&slot.token.serial),
        ..Uri::default()
    }
}

/// The error for a URI that matches several tokens; each with the option that selects it.
fn ambiguous(module: &Path, uri: &Uri, several: &[&SlotInfo]) -> String {
    let mut lines = vec![format!(
        "{uri} matches {} tokens of {}; nothing was done. Name one by serial= or slot-id=:",
        several.len(),
        module.display()
    )];
    lines.extend(several.iter().map(|slot| {
        let serial = &slot.token.serial;
        let namesakes = several.iter().filter(|other| other.token.serial == *serial);
        let by_serial = !serial.is_empty() && namesakes.count() == 1;
        let own = Uri {
            serial: by_serial.then(|| serial.clone()),
            slot_id: (!by_serial).then_some(slot.id),
            ..Uri::default()
        };
        format!("  {slot}: --uri {own}")
    }));
    lines.join("\n")
}
