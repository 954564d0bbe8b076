//! Cards in readers.

use std::fmt::Write as _;

use anyhow::Context as _;
use hsmux_smartcard::Card;
use hsmux_smartcard::pcsc::{CardState, CardTimeouts, Channel, Reader, readers};
use hsmux_smartcard::provision::{Access, ProvisionError, report};
use hsmux_token::Secret;

/// A SmartCard-HSM.
pub struct FoundCard {
    pub card: Card<Channel>,
    pub serial: String,
}

impl FoundCard {
    /// Its reader.
    pub fn reader(&self) -> &str {
        self.card.name()
    }

    /// Opens the card with its user's PIN.
    pub fn access(self, pin: Secret, last_try: bool) -> Access<Channel> {
        Access {
            card: self.card,
            serial: self.serial,
            pin,
            last_try,
        }
    }
}

/// A reader whose card gives no serial number.
pub struct Other {
    reader: String,
    error: ProvisionError,
}

impl Other {
    /// Whether it may still be a SmartCard-HSM: it gave no answer, whereas other cards refuse.
    pub fn is_silent(&self) -> bool {
        !self.error.is_answer()
    }
}

impl std::fmt::Display for Other {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reader, self.error)
    }
}

/// All SmartCard-HSMs, and other readers with cards.
pub fn all() -> anyhow::Result<(Vec<FoundCard>, Vec<Other>)> {
    Ok(look_into(readers()?))
}

fn look_into(readers: Vec<Reader>) -> (Vec<FoundCard>, Vec<Other>) {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for reader in readers {
        if reader.card == CardState::Empty {
            continue;
        }
        let opened = Channel::open(&reader.name, CardTimeouts::default());
        let known = opened.map_err(ProvisionError::from).and_then(|channel| {
            let mut card = Card::new(channel);
            let serial = report::serial(&mut card)?;
            Ok(FoundCard { card, serial })
        });
        match known {
            Ok(card) => found.push(card),
            Err(error) => others.push(Other {
                reader: reader.name,
                error,
            }),
        }
    }
    (found, others)
}

/// The only card with this serial number, in this reader; without both the only card.
/// If a reader is given, no other one is accessed.
pub fn one(serial: Option<&str>, reader: Option<&str>) -> anyhow::Result<FoundCard> {
    let mut readers = readers()?;
    if let Some(name) = reader {
        let names: Vec<_> = readers.iter().map(|reader| quoted(&reader.name)).collect();
        readers.retain(|reader| reader.name == name);
        anyhow::ensure!(
            !readers.is_empty(),
            "there is no reader {}; the readers are: {}",
            quoted(name),
            if names.is_empty() {
                "none".into()
            } else {
                names.join(", ")
            }
        );
    }
    let (mut found, others) = look_into(readers);
    let there: Vec<_> = found.iter().map(|card| card.serial.clone()).collect();
    found.retain(|card| serial.is_none_or(|serial| card.serial == serial));
    let place = reader.map_or_else(
        || "the readers".into(),
        |name| format!("reader {}", quoted(name)),
    );
    single(found, serial, &place, &there, &others)
}

/// The only one of these cards with the requested serial number, if any. `place` is the searched location,
/// `there` the serial numbers of all cards found.
pub fn single(
    mut cards: Vec<FoundCard>,
    serial: Option<&str>,
    place: &str,
    there: &[String],
    others: &[Other],
) -> anyhow::Result<FoundCard> {
    if cards.len() > 1 {
        anyhow::bail!(ambiguous(serial, &cards));
    }
    if let Some(card) = cards.pop() {
        return Ok(card);
    }
    let wanted = serial.map_or_else(|| "no card".into(), |serial| format!("no card {serial}"));
    let mut lines = vec![format!("there is {wanted} in {place}")];
    if !there.is_empty() {
        lines.push(format!("there are: {}", there.join(", ")));
    }
    lines.extend(others.iter().map(Other::to_string));
    anyhow::bail!(lines.join("\n"))
}

/// Keeps only the cards in these readers for their serial numbers.
pub fn only_in(readers: &[String], cards: &mut Vec<FoundCard>) -> anyhow::Result<()> {
    let mut chosen: Vec<(String, &String)> = Vec::new();
    for reader in readers {
        let there = cards.iter().find(|card| card.reader() == reader);
        let serial = there.map(|card| card.serial.clone()).with_context(|| {
            let readers: Vec<_> = cards.iter().map(|card| quoted(card.reader())).collect();
            format!(
                "there is no SmartCard-HSM in a reader {}; there are cards in: {}",
                quoted(reader),
                readers.join(", ")
            )
        })?;
        let twin = chosen.iter().find(|(chosen, _)| *chosen == serial);
        if let Some((_, other)) = twin {
            anyhow::bail!(
                "the readers {} and {} both hold a card {serial}: name one of them",
                quoted(other),
                quoted(reader)
            );
        }
        chosen.push((serial, reader));
    }
    cards.retain(|card| {
        let choice = chosen.iter().find(|(serial, _)| *serial == card.serial);
        choice.is_none_or(|(_, reader)| *reader == card.reader())
    });
    Ok(())
}

/// The error for several matching cards, with their readers and the option to choose one.
fn ambiguous(serial: Option<&str>, cards: &[FoundCard]) -> String {
    let mut text = match serial {
        Some(serial) => format!("{} readers hold a card {serial}", cards.len()),
        None => "there are several cards".to_owned(),
    };
    text.push_str("; nothing was touched. Choose one with --reader:");
    for card in cards {
        let _ = write!(text, "\n  --reader {}", quoted(card.reader()));
        if serial.is_none() {
            let _ = write!(text, "    (or --card {})", card.serial);
        }
    }
    text
}

/// Quotes a reader's name, of printable characters, for a shell.
fn quoted(name: &str) -> String {
    let printable = name.replace(char::is_control, "?");
    format!("'{}'", printable.replace('\'', r"'\''"))
}
