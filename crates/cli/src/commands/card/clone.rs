//! `hsmux card clone`.

use clap::Args;
use hsmux_daemon::admin::{LocalAction, Stage};
use hsmux_smartcard::KeyReference;
use hsmux_smartcard::pcsc::Channel;
use hsmux_smartcard::provision::clone::{check, run};
use hsmux_smartcard::provision::{Access, ProvisionError, ReceiveResult};
use hsmux_token::Secret;
use serde_json::json;

use super::find::{self, FoundCard};
use super::{Breaker, ParkedMembers, bar};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;
use crate::pin::PinArg;

/// Options of `hsmux card clone`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux card clone --from DENK0100001 --to DENK0100002,DENK0100003\n  \
    hsmux card clone --from DENK0100001 --all --pin file:user.pin\n\n\
    All cards must have the same DKEK. Each copied key is proved. Equal objects that are present are kept: a\n\
    second run copies only what is missing. Exit code 3 if something could not be copied.")]
pub struct Clone {
    /// The card to copy from
    #[arg(long, value_name = "SERIAL")]
    from: String,
    /// The cards to copy to
    #[arg(
        long,
        value_name = "SERIAL,...",
        value_delimiter = ',',
        required_unless_present = "all"
    )]
    to: Vec<String>,
    /// Copy to all present cards with the same DKEK
    #[arg(long, conflicts_with = "to")]
    all: bool,
    /// The reader, by its exact name, if several hold a card of one serial number; may be repeated
    #[arg(long, value_name = "NAME")]
    reader: Vec<String>,
    /// The user's PIN of all cards: file:PATH, env:NAME, fd:NUMBER or prompt
    #[arg(long, value_name = "SOURCE", default_value = "prompt")]
    pin: PinArg,
    /// The PIN of a card that has another one; may be repeated
    #[arg(long, value_name = "SERIAL=SOURCE", value_parser = pin_of)]
    pin_of: Vec<(String, PinArg)>,
    /// Try the PIN even if one try is left: a wrong PIN then blocks it
    #[arg(long)]
    last_try: bool,
}

fn pin_of(text: &str) -> Result<(String, PinArg), String> {
    let (serial, source) = text.split_once('=').ok_or("SERIAL=SOURCE is expected")?;
    let Ok(source) = source.parse();
    Ok((serial.to_owned(), source))
}

impl Clone {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (source, targets) = self.choose()?;
        let serials: Vec<_> = targets.iter().chain([&source]).collect();
        let serials: Vec<_> = serials.iter().map(|card| card.serial.clone()).collect();
        // Read once, since a file descriptor gives its content only once.
        let shared = self.pin.read("PIN of the cards")?;
        let mut source = self.access(source, &shared)?;
        let targets = targets
            .into_iter()
            .map(|card| self.access(card, &shared))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let parked = ParkedMembers::park(context, &serials)?;
        let outcome = self.copy(context, &mut source, targets);
        drop(source);
        parked.resume(outcome)
    }

    /// The named cards, or all. Their serial numbers are unique.
    fn choose(&self) -> anyhow::Result<(FoundCard, Vec<FoundCard>)> {
        let (mut cards, others) = find::all()?;
        find::only_in(&self.reader, &mut cards)?;
        let there: Vec<_> = cards.iter().map(|card| card.serial.clone()).collect();
        let mut take = |serial: &str| {
            let twins = cards.extract_if(.., |card| card.serial == serial).collect();
            find::single(twins, Some(serial), "the readers", &there, &others)
        };
        let source = take(&self.from)?;
        let mut targets = Vec::new();
        for serial in &self.to {
            targets.push(take(serial)?);
        }
        if self.all {
            let mut serials: Vec<_> = cards.iter().map(|card| card.serial.clone()).collect();
            serials.sort();
            serials.dedup();
            for serial in serials {
                let twins = cards.extract_if(.., |card| card.serial == serial).collect();
                targets.push(find::single(
                    twins,
                    Some(&serial),
                    "the readers",
                    &there,
                    &others,
                )?);
            }
        }
        anyhow::ensure!(!targets.is_empty(), "there is no card to copy to");
        Ok((source, targets))
    }

    fn access(&self, card: FoundCard, shared: &Secret) -> anyhow::Result<Access<Channel>> {
        let own = |(serial, _): &&(String, PinArg)| *serial == card.serial;
        let pin = match self.pin_of.iter().find(own) {
            Some((serial, source)) => source.read(&format!("PIN of card {serial}"))?,
            None => shared.clone(),
        };
        Ok(card.access(pin, self.last_try))
    }

    /// Copies. With `--all` a card that cannot take the keys is reported and skipped; a named one is an error before
    /// any change.
    fn copy(
        &self,
        context: &Context,
        source: &mut Access<Channel>,
        mut targets: Vec<Access<Channel>>,
    ) -> anyhow::Result<Exit> {
        let verdicts = check(source, &mut targets)?;
        let mut refused = Vec::new();
        let mut fits = Vec::new();
        for (target, verdict) in targets.into_iter().zip(verdicts) {
            match verdict {
                Ok(()) => fits.push(target),
                Err(error) => refused.push(error),
            }
        }
        if !refused.is_empty() && (!self.all || fits.is_empty()) {
            let lines: Vec<_> = refused.iter().map(ToString::to_string).collect();
            anyhow::bail!("nothing was touched:\n{}", lines.join("\n"));
        }
        let action = LocalAction::CardClone {
            from: source.serial.clone(),
            to: fits.iter().map(|card| card.serial.clone()).collect(),
        };
        let copy = || -> anyhow::Result<_> {
            let breaker = Breaker::new(context)?;
            let mut all = std::iter::once(&mut *source).chain(&mut fits);
            all.try_for_each(|access| breaker.pass(access))?;
            let (bar, follow) = bar("copying");
            let cloned = run(source, &mut fits, &follow);
            bar.finish_and_clear();
            Ok(cloned?)
        };
        let cloned = context.recorded_as(&action, copy, |cloned| {
            stage(&cloned.targets, &cloned.failures)
        })?;
        refused.extend(cloned.failures);
        show(context, &cloned.targets, &refused)
    }
}

/// The outcome for the audit trail.
pub fn stage(targets: &[ReceiveResult], failures: &[ProvisionError]) -> Stage {
    let all = targets.iter().flat_map(|target| &target.failures);
    let why: Vec<_> = failures
        .iter()
        .chain(all)
        .map(ToString::to_string)
        .collect();
    if why.is_empty() {
        Stage::Done
    } else {
        Stage::Failed(why.join("; "))
    }
}

/// Prints the received objects of each card, and errors.
pub fn show(
    context: &Context,
    targets: &[ReceiveResult],
    failures: &[ProvisionError],
) -> anyhow::Result<Exit> {
    let words =
        |errors: &[ProvisionError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    if context.json {
        let numbers = |keys: &[KeyReference]| keys.iter().map(|key| key.0).collect::<Vec<_>>();
        let target = |target: &ReceiveResult| {
            json!({
                "serial": target.card,
                "copied": numbers(&target.copied),
                "completed": numbers(&target.completed),
                "present": numbers(&target.present),
                "files": target.files.len(),
                "failures": words(&target.failures),
            })
        };
        let targets: Vec<_> = targets.iter().map(target).collect();
        output::json(&json!({ "cards": targets, "failures": words(failures) }))?;
    } else {
        let row = |target: &ReceiveResult| {
            let keys = [&target.copied, &target.completed, &target.present];
            let mut cells = vec![target.card.clone()];
            cells.extend(keys.map(|keys| keys.len().to_string()));
            cells.extend([target.files.len(), target.failures.len()].map(|n| n.to_string()));
            cells
        };
        let columns = [
            output::Column::whole("CARD"),
            output::Column::whole("COPIED"),
            output::Column::whole("COMPLETED"),
            output::Column::whole("THERE"),
            output::Column::whole("OTHER FILES"),
            output::Column::whole("FAILED"),
        ];
        output::table(&columns, targets.iter().map(row));
        let all = targets.iter().flat_map(|target| &target.failures);
        for error in failures.iter().chain(all) {
            println!("{error}");
        }
    }
    let whole = failures.is_empty() && targets.iter().all(|target| target.failures.is_empty());
    Ok(if whole { Exit::Done } else { Exit::Degraded })
}
