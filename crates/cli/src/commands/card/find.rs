//! Cards in readers.

use anyhow::Context as _;
use hsmux_smartcard::Card;
use hsmux_smartcard::pcsc::{CardState, Channel, Limits, readers};
use hsmux_smartcard::provision::{Access, ProvisionError, report};
use hsmux_token::Secret;

/// A SmartCard-HSM.
pub struct Found {
    pub card: Card<Channel>,
    pub serial: String,
}

impl Found {
    /// The card, with the PIN of its user.
    pub fn access(self, pin: Secret, last_try: bool) -> Access<Channel> {
        Access {
            card: self.card,
            serial: self.serial,
            pin,
            last_try,
        }
    }
}

/// A reader whose card does not say its serial number.
pub struct Other {
    reader: String,
    error: ProvisionError,
}

impl Other {
    /// Whether it may be a SmartCard-HSM all the same: it said nothing, where another kind of card says no.
    pub fn is_silent(&self) -> bool {
        !self.error.is_answer()
    }
}

impl std::fmt::Display for Other {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reader, self.error)
    }
}

/// All cards there are, and what else is in readers.
pub fn all() -> anyhow::Result<(Vec<Found>, Vec<Other>)> {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for reader in readers()? {
        if reader.card == CardState::Empty {
            continue;
        }
        let opened = Channel::open(&reader.name, Limits::default());
        let known = opened.map_err(ProvisionError::from).and_then(|channel| {
            let mut card = Card::new(channel);
            let serial = report::serial(&mut card)?;
            Ok(Found { card, serial })
        });
        match known {
            Ok(card) => found.push(card),
            Err(error) => others.push(Other {
                reader: reader.name,
                error,
            }),
        }
    }
    Ok((found, others))
}

/// The card with this serial number, or the only one.
pub fn one(serial: Option<&str>) -> anyhow::Result<Found> {
    let (mut found, others) = all()?;
    let there: Vec<_> = found.iter().map(|card| card.serial.clone()).collect();
    let at = if let Some(serial) = serial {
        there.iter().position(|there| there == serial)
    } else {
        anyhow::ensure!(
            there.len() < 2,
            "there are several cards: say --card with one of {}",
            there.join(", ")
        );
        there.first().map(|_| 0)
    };
    let at = at.with_context(|| {
        let wanted = serial.map_or_else(|| "no card".into(), |serial| format!("no card {serial}"));
        let mut lines = vec![format!("there is {wanted} in the readers")];
        if !there.is_empty() {
            lines.push(format!("there are: {}", there.join(", ")));
        }
        lines.extend(others.iter().map(Other::to_string));
        lines.join("\n")
    })?;
    Ok(found.swap_remove(at))
}
