//! `hsmux card dkek`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hsmux_config::PinSource;
use hsmux_daemon::admin::LocalAction;
use hsmux_smartcard::dkek::custodian::{self, PasswordShare};
use hsmux_smartcard::dkek::{CheckValue, DkekShare, ShareFile};
use hsmux_smartcard::provision::{ProvisionError as E, domain};
use serde_json::json;

use super::find::{self, FoundCard};
use super::pin::new_pin;
use super::{CardSelection, ParkedMembers, done, new_file};
use crate::context::Context;
use crate::exit::Exit;
use crate::pin::PinArg;
use crate::{output, progress};

/// The device key encryption key (DKEK): cards with the same one can exchange keys.
#[derive(Subcommand, Debug)]
pub enum DkekCommand {
    /// Create a random share in a file, protected by a password
    CreateShare(Create),
    /// Import a share into a card that was initialised for it
    ImportShare(Import),
}

/// Options of `hsmux card dkek create-share`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux card dkek create-share share1.pbe\n  \
    hsmux card dkek create-share share1.pbe --password file:share1.password\n  \
    hsmux card dkek create-share share1.pbe --threshold 2 \\\n    \
      --custodian file:alice.txt --custodian file:bob.txt --custodian prompt\n\n\
    The file has the format of sc-hsm-tool. With custodians the password is random, and opening the share\n\
    takes as many of them as --threshold says. prompt shows a custodian's part on the terminal, once.")]
pub struct Create {
    /// The file to write
    file: PathBuf,
    /// The password: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "prompt",
        conflicts_with = "custodians"
    )]
    password: PinArg,
    /// The number of custodians needed
    #[arg(long, value_name = "N", requires = "custodians")]
    threshold: Option<u8>,
    /// The destination of a custodian's part: file:PATH or prompt; once for each, at least three times
    #[arg(long = "custodian", value_name = "PLACE", requires = "threshold")]
    custodians: Vec<PinArg>,
}

/// Options of `hsmux card dkek import-share`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux card dkek import-share share1.pbe --card DENK0100001\n  \
    hsmux card dkek import-share share1.pbe --all --password file:share1.password\n  \
    hsmux card dkek import-share share1.pbe --custodian file:alice.txt --custodian prompt\n\n\
    The file may be from sc-hsm-tool. A custodian's part is the three lines that create-share or\n\
    sc-hsm-tool has shown: prime, share id, share value.")]
pub struct Import {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    which: CardSelection,
    /// Import it into every present card whose DKEK still misses a share
    #[arg(long, conflicts_with_all = ["card", "reader"])]
    all: bool,
    /// The password: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "prompt",
        conflicts_with = "custodians"
    )]
    password: PinArg,
    /// The source of a custodian's part: file:PATH, env:NAME, fd:NUMBER or prompt; as many as are needed
    #[arg(long = "custodian", value_name = "SOURCE")]
    custodians: Vec<PinArg>,
}

/// The minimum length of a password, as in sc-hsm-tool.
const SHORTEST: usize = 6;

impl DkekCommand {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::CreateShare(create) => create.run(context),
            Self::ImportShare(import) => import.run(context),
        }
    }
}

impl Create {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let share = DkekShare::random();
        let sealed = if let Some(needed) = self.threshold {
            self.under_custodians(&share, needed)?
        } else {
            let password = new_pin(&self.password, "password of the share")?;
            let long = password.expose().len() >= SHORTEST;
            anyhow::ensure!(long, "the password has fewer than {SHORTEST} characters");
            slowly("enciphering the share", || {
                ShareFile::seal(&share, password.expose())
            })
        };
        new_file::write(&self.file, sealed.as_bytes())?;
        let line = format!("a new share is in {}", self.file.display());
        done(context, &line, &json!({ "file": self.file }))
    }

    fn under_custodians(&self, share: &DkekShare, needed: u8) -> anyhow::Result<ShareFile> {
        let total = u8::try_from(self.custodians.len()).unwrap_or(u8::MAX);
        let (password, parts) = custodian::split(needed, total)?;
        for (number, (part, place)) in (1..).zip(parts.iter().zip(&self.custodians)) {
            match place {
                PinArg::Source(PinSource::File(file)) => {
                    new_file::write(file, part.to_text().as_bytes())?;
                }
                PinArg::Prompt => show(number, part)?,
                _ => anyhow::bail!("a custodian's part goes to file:PATH or prompt"),
            }
        }
        Ok(slowly("enciphering the share", || {
            ShareFile::seal(share, &password)
        }))
    }
}

impl Import {
    fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let name = self.file.display().to_string();
        let bytes = std::fs::read(&self.file).with_context(|| name.clone())?;
        let file = ShareFile::parse(&bytes).with_context(|| name.clone())?;
        let doing = "deciphering the share";
        let share = if self.custodians.is_empty() {
            let password = self.password.read(&format!("password of {name}"))?;
            slowly(doing, || file.open(password.expose()))
        } else {
            let parts = self
                .custodians
                .iter()
                .enumerate()
                .map(|(at, place)| part(at + 1, place));
            let parts = parts.collect::<anyhow::Result<Vec<_>>>()?;
            slowly(doing, || custodian::open(&file, &parts))
        };
        let share = share.with_context(|| name.clone())?;
        let import = |found: &mut FoundCard| import(context, &self.file, found, &share);
        if !self.all {
            let imported = self.which.with(context, import)?;
            return show_imported(context, &[imported]);
        }
        let (mut cards, _) = find::all()?;
        let serials: Vec<_> = cards.iter().map(|card| card.serial.clone()).collect();
        let parked = ParkedMembers::park(context, &serials)?;
        // A card that needs no share is skipped.
        let needless = |error: &anyhow::Error| {
            let known = error.downcast_ref();
            matches!(known, Some(E::WithoutDkek { .. } | E::DkekComplete { .. }))
        };
        let imported = cards.iter_mut().map(import);
        let imported = imported.filter(|card| !card.as_ref().is_err_and(needless));
        let imported = imported.collect::<anyhow::Result<Vec<_>>>();
        drop(cards);
        let imported = parked.resume(imported)?;
        anyhow::ensure!(
            !imported.is_empty(),
            "no card misses a share (hsmux card list)"
        );
        show_imported(context, &imported)
    }
}

/// A card after the import of a share.
struct Imported {
    serial: String,
    missing: u8,
    /// The key check value, once all shares are imported.
    value: Option<String>,
}

fn import(
    context: &Context,
    file: &Path,
    found: &mut FoundCard,
    share: &DkekShare,
) -> anyhow::Result<Imported> {
    let action = LocalAction::CardDkekImportShare {
        card: found.serial.clone(),
        file: file.to_owned(),
    };
    let status = context.recorded(&action, || {
        let imported = domain::import_share(&mut found.card, &found.serial, share);
        Ok(imported?)
    })?;
    let value = CheckValue(status.key_check_value).to_string();
    Ok(Imported {
        serial: found.serial.clone(),
        missing: status.missing,
        value: (status.missing == 0).then_some(value),
    })
}

fn show_imported(context: &Context, cards: &[Imported]) -> anyhow::Result<Exit> {
    if context.json {
        let card = |card: &Imported| json!({ "serial": card.serial, "missing": card.missing, "key_check_value": card.value });
        output::json(&cards.iter().map(card).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    for Imported {
        serial,
        missing,
        value,
    } in cards
    {
        match value {
            Some(value) => println!("card {serial} has its DKEK, key check value {value}"),
            None => println!("card {serial} has the share, {missing} more are missing"),
        }
    }
    Ok(Exit::Done)
}

/// Reads a custodian's part from its source.
fn part(number: usize, place: &PinArg) -> anyhow::Result<PasswordShare> {
    let whose = format!("custodian {number}");
    if matches!(place, PinArg::Prompt) {
        let ask = |what| place.read(&format!("{whose}: {what}"));
        let [prime, id, value] = [ask("prime")?, ask("share id")?, ask("share value")?];
        let text = |secret: &'_ _| {
            std::str::from_utf8(hsmux_token::Secret::expose(secret)).map(str::to_owned)
        };
        return Ok(PasswordShare::new(
            &text(&prime)?,
            &text(&id)?,
            &text(&value)?,
        )?);
    }
    let text = place.read(&whose)?;
    let text = std::str::from_utf8(text.expose()).context(whose.clone())?;
    text.parse().context(whose)
}

/// Shows a custodian's part until it is confirmed, and clears the screen.
fn show(number: usize, part: &PasswordShare) -> anyhow::Result<()> {
    use std::io::IsTerminal;
    let (input, mut output) = (std::io::stdin(), std::io::stdout());
    let terminal = input.is_terminal() && output.is_terminal();
    anyhow::ensure!(
        terminal,
        "no terminal to show a custodian's part on; use file:PATH"
    );
    let mut line = String::new();
    write!(output, "Part of custodian {number}: Enter shows it. ")?;
    output.flush()?;
    input.read_line(&mut line)?;
    write!(
        output,
        "{}Note all three lines; Enter wipes them. ",
        part.to_text().as_str()
    )?;
    output.flush()?;
    input.read_line(&mut line)?;
    // Clears the screen and the scrollback (ECMA-48; xterm).
    write!(output, "\x1b[H\x1b[2J\x1b[3J")?;
    Ok(output.flush()?)
}

/// Shows a spinner, because ten million digests take seconds.
fn slowly<T>(doing: &'static str, work: impl FnOnce() -> T) -> T {
    let waiting = progress::spinner(doing);
    let result = work();
    waiting.finish_and_clear();
    result
}
