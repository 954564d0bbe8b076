//! `hsmux card init`.

use clap::Args;
use hsmux_daemon::admin::LocalAction;
use hsmux_module::pin::PinUser;
use hsmux_smartcard::provision::initialise::initialise;
use hsmux_smartcard::provision::report::{CardReport, report};
use hsmux_smartcard::{Initialize, SoPin};
use serde_json::json;

use super::breaker::digits;
use super::find::FoundCard;
use super::pin::{new_pin, so_pin};
use super::{Breaker, CardSelection, done};
use crate::consent::erasure;
use crate::context::Context;
use crate::exit::Exit;
use crate::pin::PinArg;

/// Options of `hsmux card init`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux card init --card DENK0100001 --label web --dkek-shares 1\n  \
    hsmux card init --card DENK0100001 --label web --dkek-shares 2 --so-pin file:so.pin \\\n    \
      --pin file:user.pin --yes\n\n\
    Keys can be copied to other cards only with --dkek-shares, and only to cards with the same shares.\n\
    A new card accepts any SO-PIN. Initialised cards require their SO-PIN.\n\
    The command asks for the label before it erases a card, unless --yes is given.")]
pub struct CardInit {
    #[command(flatten)]
    which: CardSelection,
    /// The new label of the card
    #[arg(long)]
    label: String,
    /// The number of shares of its DKEK; 0: a random DKEK that no other card has [default: keys cannot be exported]
    #[arg(long, value_name = "N")]
    dkek_shares: Option<u8>,
    /// Consecutive wrong PINs that block it: at most 3 with a PIN of 6 characters, 5 with 7, 10 with more
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u8,
    /// Forbid the SO-PIN to unblock the user's PIN
    #[arg(long)]
    no_unblock: bool,
    /// The SO-PIN, 16 hexadecimal digits: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    so_pin: PinArg,
    /// The user's new PIN, 6 to 16 characters: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    pin: PinArg,
    /// Do not ask for confirmation before the card is erased
    #[arg(long)]
    yes: bool,
}

impl CardInit {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let serial = self.which.with(context, |found| {
            let before = report(&mut found.card, false)?;
            confirm(self.yes, &before)?;
            let so_pin = so_pin(&self.so_pin)?;
            let how = self.how(so_pin)?;
            let Self { label, which, .. } = &self;
            let breaker = Breaker::new(context)?;
            let FoundCard { card, serial } = found;
            let serial = &*serial;
            let action = LocalAction::CardInit {
                card: serial.clone(),
                label: label.clone(),
                dkek_shares: self.dkek_shares,
            };
            context.recorded(&action, || {
                breaker.show(
                    serial,
                    PinUser::SecurityOfficer,
                    digits(&how.so_pin).expose(),
                    || initialise(card, serial, &how, label, which.last_try),
                )?;
                breaker.learn(serial, &how.pin)
            })?;
            Ok(serial.clone())
        })?;
        let line = format!("card {serial} is initialised as {:?}", self.label);
        done(
            context,
            &line,
            &json!({ "serial": serial, "label": self.label }),
        )
    }

    fn how(&self, so_pin: SoPin) -> anyhow::Result<Initialize> {
        Ok(Initialize {
            so_pin,
            pin: new_pin(&self.pin, "user's new PIN")?,
            retries: self.retries,
            dkek_shares: self.dkek_shares,
            public_keys: None,
            allow_reset: !self.no_unblock,
            transport_pin: false,
        })
    }
}

/// Reports the loss, and asks for the card's label unless `yes`.
fn confirm(yes: bool, card: &CardReport) -> anyhow::Result<()> {
    let CardReport {
        serial,
        label,
        reader,
        keys,
        ..
    } = card;
    let keys = match keys.len() {
        1 => "its key".to_owned(),
        count => format!("its {count} keys"),
    };
    let lost = format!("card {serial} {label:?} in {reader}, with {keys}");
    erasure(yes, "card", &[label, serial], &lost)
}
