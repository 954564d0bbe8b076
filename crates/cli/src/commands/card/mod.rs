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
use hsmux_daemon::admin::{Deed, Stage};
use hsmux_smartcard::KeyReference;
use hsmux_smartcard::pcsc::Channel;
use hsmux_smartcard::provision::{Access, CardProgress};
use indicatif::ProgressBar;

use self::breaker::Breaker;
use self::find::Found;
use self::parked::Parked;
use crate::context::Context;
use crate::exit::Exit;
use crate::pin::PinArg;
use crate::{output, progress};

/// SmartCard-HSMs and Nitrokey HSMs in PC/SC readers. Cards are named by their serial numbers, or by their readers.
#[derive(Subcommand, Debug)]
pub enum Card {
    /// List the cards: versions, PINs, DKEK, keys; no try of a PIN is spent
    #[command(
        after_help = "Examples:\n  hsmux card list\n  hsmux card list --json\n\n\
        A card that fails is told in its row. Exit code 3 when there is one."
    )]
    List,
    /// Initialise a card, which erases it
    Init(init::Init),
    /// The key under which keys go from card to card
    #[command(subcommand)]
    Dkek(dkek::Dkek),
    /// Single keys in files
    #[command(subcommand)]
    Key(key::Key),
    /// Copy all keys, certificates and data of one card to others, proved
    Clone(clone::Clone),
    /// PINs of a card
    #[command(subcommand)]
    Pin(pin::Pin),
    /// Write everything on a card into one file; keys stay wrapped under its DKEK
    Backup(backup::Backup),
    /// Put everything from a backup onto a card with the same DKEK
    Restore(backup::Restore),
}

/// Which card, of those that are there.
#[derive(Args, Debug)]
pub struct Which {
    /// The card's serial number [default: the only card there is]
    #[arg(long, value_name = "SERIAL")]
    card: Option<String>,
    /// The reader that the card is in, by its exact name; with --card the serial number must match, too
    #[arg(long, value_name = "NAME")]
    reader: Option<String>,
    /// Try the PIN even where one try is left: a wrong one blocks it then
    #[arg(long)]
    last_try: bool,
}

/// Which card, and the PIN of its user.
#[derive(Args, Debug)]
pub struct Login {
    #[command(flatten)]
    which: Which,
    /// The user's PIN: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    pin: PinArg,
}

impl Card {
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

impl Which {
    fn find(&self) -> anyhow::Result<Found> {
        find::one(self.card.as_deref(), self.reader.as_deref())
    }

    /// The card; the daemon's member that uses it, if there is one, is parked until `Parked` is resumed.
    fn open(&self, context: &Context) -> anyhow::Result<(Found, Parked)> {
        let found = self.find()?;
        let parked = Parked::park(context, std::slice::from_ref(&found.serial))?;
        Ok((found, parked))
    }

    /// Does something with the card while no member of the daemon uses it.
    fn with<T>(
        &self,
        context: &Context,
        work: impl FnOnce(&mut Found) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (mut found, parked) = self.open(context)?;
        let outcome = work(&mut found);
        drop(found);
        parked.resume(outcome)
    }
}

impl Login {
    /// The same, with the PIN of the card's user; `deed` is for the audit trail, and is given the serial number.
    fn with<T>(
        &self,
        context: &Context,
        deed: impl FnOnce(String) -> Deed,
        work: impl FnOnce(&mut Access<Channel>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.with_as(context, deed, work, |_| Stage::Done)
    }

    /// The same with something that may come through and not be whole: `stage` says how it ended.
    fn with_as<T>(
        &self,
        context: &Context,
        deed: impl FnOnce(String) -> Deed,
        work: impl FnOnce(&mut Access<Channel>) -> anyhow::Result<T>,
        stage: impl FnOnce(&T) -> Stage,
    ) -> anyhow::Result<T> {
        let found = self.which.find()?;
        let pin = self.pin.read(&format!("PIN of card {}", found.serial))?;
        let deed = deed(found.serial.clone());
        let parked = Parked::park(context, std::slice::from_ref(&found.serial))?;
        let mut access = found.access(pin, self.which.last_try);
        let shown = || -> anyhow::Result<T> {
            Breaker::new(context)?.pass(&mut access)?;
            work(&mut access)
        };
        let outcome = context.recorded_as(&deed, shown, stage);
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

/// A bar that follows progress on cards.
fn bar(doing: &'static str) -> (ProgressBar, impl Fn(CardProgress<'_>) + Sync) {
    let bar = progress::bar(0, doing);
    let shown = bar.clone();
    let follow = move |progress: CardProgress<'_>| {
        shown.set_length(progress.total as u64);
        shown.set_position(progress.done as u64);
    };
    (bar, follow)
}

/// Says what was done: one line for people, or an object.
fn done(context: &Context, line: &str, json: &serde_json::Value) -> anyhow::Result<Exit> {
    if context.json {
        output::json(json)?;
    } else {
        println!("{line}");
    }
    Ok(Exit::Done)
}
