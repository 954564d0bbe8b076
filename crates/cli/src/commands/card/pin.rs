//! `hsmux card pin`.

use clap::{Args, Subcommand};
use hsmux_daemon::admin::LocalAction;
use hsmux_module::pin::PinUser;
use hsmux_smartcard::SoPin;
use hsmux_smartcard::provision::pins;
use hsmux_token::Secret;
use serde_json::json;

use super::breaker::digits;
use super::find::FoundCard;
use super::{Breaker, CardLogin, CardSelection, done};
use crate::context::Context;
use crate::exit::Exit;
use crate::pin::PinArg;

/// PINs of a card.
#[derive(Subcommand, Debug)]
pub enum CardPinCommand {
    /// Change the user's PIN; this also replaces a transport PIN
    Change(Change),
    /// Unblock a PIN with the SO-PIN
    Unblock(Unblock),
}

/// Options of `hsmux card pin change`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    hsmux card pin change --card DENK0100001 --pin file:old.pin --new-pin file:new.pin\n\n\
    A wrong PIN is tried only once. Members of a running daemon need the new PIN in their configuration.")]
pub struct Change {
    #[command(flatten)]
    login: CardLogin,
    /// The new PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    new_pin: PinArg,
}

/// Options of `hsmux card pin unblock`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux card pin unblock --card DENK0100001                       # the PIN stays\n  \
    hsmux card pin unblock --card DENK0100001 --new-pin file:new.pin")]
pub struct Unblock {
    #[command(flatten)]
    which: CardSelection,
    /// The SO-PIN, 16 hexadecimal digits: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    so_pin: PinArg,
    /// The user's new PIN: file:PATH, env:NAME, fd:NUMBER or prompt [default: the old one]
    #[arg(long, value_name = "SOURCE")]
    new_pin: Option<PinArg>,
}

impl CardPinCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (serial, what) = match self {
            Self::Change(change) => (change.run(context)?, "has a new PIN"),
            Self::Unblock(unblock) => (unblock.run(context)?, "takes its PIN again"),
        };
        done(
            context,
            &format!("card {serial} {what}"),
            &json!({ "serial": serial }),
        )
    }
}

impl Change {
    fn run(self, context: &Context) -> anyhow::Result<String> {
        self.login.which.with(context, |found| {
            let old = self.login.pin.read("old PIN")?;
            let new = new_pin(&self.new_pin, "new PIN")?;
            let last_try = self.login.which.last_try;
            let breaker = Breaker::new(context)?;
            let FoundCard { card, serial } = found;
            let serial = &*serial;
            let action = LocalAction::CardPinChange {
                card: serial.clone(),
            };
            context.recorded(&action, || {
                breaker.show(serial, PinUser::User, old.expose(), || {
                    pins::change(card, serial, &old, &new, last_try)
                })?;
                breaker.learn(serial, &new)
            })?;
            Ok(serial.clone())
        })
    }
}

impl Unblock {
    fn run(self, context: &Context) -> anyhow::Result<String> {
        self.which.with(context, |found| {
            let so_pin = so_pin(&self.so_pin)?;
            let new = self.new_pin.as_ref().map(|pin| new_pin(pin, "new PIN"));
            let (new, last_try) = (new.transpose()?, self.which.last_try);
            let breaker = Breaker::new(context)?;
            let FoundCard { card, serial } = found;
            let serial = &*serial;
            let action = LocalAction::CardPinUnblock {
                card: serial.clone(),
                new_pin: new.is_some(),
            };
            context.recorded(&action, || {
                breaker.show(
                    serial,
                    PinUser::SecurityOfficer,
                    digits(&so_pin).expose(),
                    || pins::unblock(card, serial, &so_pin, new.as_ref(), last_try),
                )?;
                new.as_ref()
                    .map_or(Ok(()), |new| breaker.learn(serial, new))
            })?;
            Ok(serial.clone())
        })
    }
}

/// Reads an SO-PIN.
pub fn so_pin(source: &PinArg) -> anyhow::Result<SoPin> {
    Ok(SoPin::from_hex(
        source.read("SO-PIN (16 hexadecimal digits)")?.expose(),
    )?)
}

/// Reads a new PIN; at a terminal it is asked for twice.
pub fn new_pin(source: &PinArg, whose: &str) -> anyhow::Result<Secret> {
    let pin = source.read(whose)?;
    if matches!(source, PinArg::Prompt) {
        let again = source.read(&format!("{whose}, again"))?;
        anyhow::ensure!(
            again.expose() == pin.expose(),
            "{whose}: these are two different ones"
        );
    }
    Ok(pin)
}
