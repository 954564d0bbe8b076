//! `hsmux card`.

mod backup;
mod breaker;
mod clone;
mod dkek;
mod find;
mod init;
mod key;
mod list;
mod new_file;
mod parked;
mod pin;

use clap::{Args, Subcommand};
use hsmux_daemon::admin::{LocalAction, Stage};
use hsmux_smartcard::KeyReference;
use hsmux_smartcard::pcsc::Channel;
use hsmux_smartcard::provision::{Access, CardProgress};
use indicatif::ProgressBar;

use self::breaker::Breaker;
use self::find::FoundCard;
use self::parked::ParkedMembers;
use crate::context::Context;
use crate::exit::Exit;
use crate::pin::PinArg;
use crate::{output, progress};

/// SmartCard-HSMs and Nitrokey HSMs in PC/SC readers. Cards are named by their serial numbers, or by their readers.
#[derive(Subcommand, Debug)]
pub enum CardCommand {
    /// List the cards with versions, PINs, DKEK and keys; no try of a PIN is spent
    #[command(
        after_help = "Examples:\n  hsmux card list\n  hsmux card list --json\n\n\
        The row of a failing card has its error; the exit code is then 3."
    )]
    List,
    /// Initialise a card, which erases it
    Init(init::CardInit),
    /// The DKEK, which wraps keys for other cards
    #[command(subcommand)]
    Dkek(dkek::DkekCommand),
    /// Single keys in files
    #[command(subcommand)]
    Key(key::CardKeyCommand),
    /// Copy all keys, certificates and data of one card to others, and prove the keys
    Clone(clone::Clone),
    /// PINs of a card
    #[command(subcommand)]
    Pin(pin::CardPinCommand),
    /// Write all contents of a card into one file; keys remain wrapped under its DKEK
    Backup(backup::Backup),
    /// Restore all contents of a backup to a card with the same DKEK
    Restore(backup::Restore),
}

/// The selection of a card.
#[derive(Args, Debug)]
pub struct CardSelection {
    /// The card's serial number [default: the only present card]
    #[arg(long, value_name = "SERIAL")]
    card: Option<String>,
    /// The card's reader, by its exact name; with --card the serial number must match as well
    #[arg(long, value_name = "NAME")]
    reader: Option<String>,
    /// Try the PIN even if one try is left: a wrong PIN then blocks it
    #[arg(long)]
    last_try: bool,
}

/// The selection of a card, and its user's PIN.
#[derive(Args, Debug)]
pub struct CardLogin {
    #[command(flatten)]
    which: CardSelection,
    /// The user's PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    pin: PinArg,
}

impl CardCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::List => list::run(context),
            Self::Init(init) => init.run(context),
            Self::Dkek(dkek) => dkek.run(context),
            Self::Key(key) => key.run(context),
            Self::Clone(clone) => clone.run(context),
            Self::Pin(pin) => pin.run(context),
            Self::Backup(backup) => backup.run(context),
            Self::Restore(restore) => restore.run(context),
        }
    }
}

impl CardSelection {
    fn find(&self) -> anyhow::Result<FoundCard> {
        find::one(self.card.as_deref(), self.reader.as_deref())
    }

    /// Opens the card. A member of the daemon that uses it is parked until `ParkedMembers` is resumed.
    fn open(&self, context: &Context) -> anyhow::Result<(FoundCard, ParkedMembers)> {
        let found = self.find()?;
        let parked = ParkedMembers::park(context, std::slice::from_ref(&found.serial))?;
        Ok((found, parked))
    }

    /// Runs an action on the card while no member of the daemon uses it.
    fn with<T>(
        &self,
        context: &Context,
        work: impl FnOnce(&mut FoundCard) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (mut found, parked) = self.open(context)?;
        let outcome = work(&mut found);
        drop(found);
        parked.resume(outcome)
    }
}

impl CardLogin {
    /// The same with the PIN of the card's user. `action` creates the line of the audit trail from the serial number.
    fn with<T>(
        &self,
        context: &Context,
        action: impl FnOnce(String) -> LocalAction,
        work: impl FnOnce(&mut Access<Channel>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.with_as(context, action, work, |_| Stage::Done)
    }

    /// The same for an action that may succeed partially; `stage` returns its outcome.
    fn with_as<T>(
        &self,
        context: &Context,
        action: impl FnOnce(String) -> LocalAction,
        work: impl FnOnce(&mut Access<Channel>) -> anyhow::Result<T>,
        stage: impl FnOnce(&T) -> Stage,
    ) -> anyhow::Result<T> {
        let found = self.which.find()?;
        let pin = self.pin.read(&format!("PIN of card {}", found.serial))?;
        let action = action(found.serial.clone());
        let parked = ParkedMembers::park(context, std::slice::from_ref(&found.serial))?;
        let mut access = found.access(pin, self.which.last_try);
        let shown = || -> anyhow::Result<T> {
            Breaker::new(context)?.pass(&mut access)?;
            work(&mut access)
        };
        let outcome = context.recorded_as(&action, shown, stage);
        drop(access);
        parked.resume(outcome)
    }
}

/// The number of a key on a card.
fn key_reference(text: &str) -> Result<KeyReference, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a number from 1 to 255 (hsmux card list)".into()),
        Ok(number) => Ok(KeyReference(number)),
    }
}

/// A bar for progress on cards.
fn bar(doing: &'static str) -> (ProgressBar, impl Fn(CardProgress<'_>) + Sync) {
    let bar = progress::bar(0, doing);
    let shown = bar.clone();
    let follow = move |progress: CardProgress<'_>| {
        shown.set_length(progress.total as u64);
        shown.set_position(progress.done as u64);
    };
    (bar, follow)
}

/// Reports the result: one line of text, or a JSON object.
fn done(context: &Context, line: &str, json: &serde_json::Value) -> anyhow::Result<Exit> {
    if context.json {
        output::json(json)?;
    } else {
        println!("{line}");
    }
    Ok(Exit::Done)
}
