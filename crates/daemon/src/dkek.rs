//! Copies new keys from one SmartCard-HSM to others, by the DKEK that they share.
//!
//! This uses PC/SC, beside the workers. A login belongs to the card, so the worker's login is used.

use std::collections::HashMap;

use hsmux_replicate::Replicator;
use hsmux_smartcard::pcsc::{CardState, CardTimeouts, Channel, Reader, readers};
use hsmux_smartcard::provision::new_key::{self, NewKeySearch};
use hsmux_smartcard::provision::{KeyPackage, ProvisionError, report};
use hsmux_smartcard::{Card, PinReference, PinStatus, StatusWord};
use hsmux_token::{Blob, Error, Kind, Result, TokenInfo};
use minicbor::{Decode, Encode};
use parking_lot::Mutex;

use crate::hot_plug::slot;

/// The cards of this machine's readers.
#[derive(Default)]
pub struct DkekReplicator {
    /// Cards without the application. They are not asked again while they stay in their readers.
    others: Mutex<HashMap<Insertion, String>>,
}

/// Identifies a card while it stays in a reader: the reader's name, and its count of insertions and removals.
type Insertion = (String, u32);

/// The most readers that are remembered. pcscd has 16.
const MOST_READERS: usize = 256;

impl DkekReplicator {
    /// The card of a token, in the reader that its slot is named after, or in any reader.
    fn card(&self, token: &TokenInfo) -> Result<Card<Channel>> {
        self.find(token)
            .map_err(|why| Error::token(Kind::Lost, format!("card {}: {why}", token.serial)))
    }

    fn find(&self, token: &TokenInfo) -> std::result::Result<Card<Channel>, String> {
        let Some(place) = &token.slot else {
            return Err("its slot takes no cards (CKF_REMOVABLE_DEVICE)".into());
        };
        if token.serial.is_empty() {
            return Err("it has no serial number, by which its card would be known".into());
        }
        let mut there = readers().map_err(|error| format!("no reader was asked: {error}"))?;
        there.retain(|reader| reader.card != CardState::Empty);
        let (own, others): (Vec<_>, Vec<_>) = there
            .iter()
            .partition(|reader| slot(&reader.name) == place.as_str());
        let mut answers = Vec::new();
        // Only the card in the token's own slot may be disturbed.
        for (readers, selects) in [(own, true), (others, false)] {
            let mut found = Vec::new();
            for reader in readers {
                match self.ask(reader, selects) {
                    Ok((card, serial)) if serial == token.serial => found.push(card),
                    Ok((_, serial)) => answers.push(format!("{}: card {serial}", reader.name)),
                    Err(why) => answers.push(why),
                }
            }
            if found.len() > 1 {
                let readers: Vec<_> = found.iter().map(Card::name).collect();
                return Err(format!(
                    "several readers hold a card of this serial number, pull all but one: {}",
                    readers.join(", ")
                ));
            }
            if let Some(card) = found.pop() {
                return Ok(card);
            }
        }
        forget(&mut self.others.lock(), &there);
        Err(missing(token, &answers))
    }

    /// The card in a reader and its serial number, or its answer if it is another card. With `selects` the application
    /// is selected if necessary.
    fn ask(
        &self,
        reader: &Reader,
        selects: bool,
    ) -> std::result::Result<(Card<Channel>, String), String> {
        let insertion = (reader.name.clone(), reader.events);
        if let Some(answer) = self.others.lock().get(&insertion) {
            return Err(answer.clone());
        }
        let asked = || -> std::result::Result<_, ProvisionError> {
            let mut card = Card::new(Channel::open(&reader.name, CardTimeouts::default())?);
            let serial = if selects {
                report::serial(&mut card)
            } else {
                report::serial_as_selected(&mut card)
            };
            Ok((card, serial?))
        };
        asked().map_err(|error| {
            let answer = error.to_string();
            if selects && is_of_another_kind(&error) {
                remember(&mut self.others.lock(), insertion, &answer);
            }
            answer
        })
    }
}

/// True if a card has answered that it has no such application. Other errors may be temporary.
fn is_of_another_kind(error: &ProvisionError) -> bool {
    let ProvisionError::Card(error) = error else {
        return false;
    };
    error.status() == Some(StatusWord::FILE_NOT_FOUND)
}

/// Remembers the answer of a card without the application.
fn remember(others: &mut HashMap<Insertion, String>, insertion: Insertion, answer: &str) {
    if others.len() < MOST_READERS {
        others.insert(insertion, answer.to_owned());
    }
}

/// Forgets the cards that have left.
fn forget(others: &mut HashMap<Insertion, String>, there: &[Reader]) {
    others.retain(|(name, events), _| {
        let stays = |reader: &Reader| (&reader.name, reader.events) == (name, *events);
        there.iter().any(stays)
    });
}

fn missing(token: &TokenInfo, answers: &[String]) -> String {
    let asked = if answers.is_empty() {
        "no reader of the daemon's pcscd holds a card".into()
    } else {
        answers.join("; ")
    };
    format!(
        "no reader holds a SmartCard-HSM with its serial number {} (READ BINARY of the device certificate, \
         EF 2F02: {asked}); hsmux card list shows the cards",
        token.serial
    )
}

impl Replicator for DkekReplicator {
    /// Asks the card itself, whatever manufacturer its module reports. Only a SmartCard-HSM proves this serial number
    /// by a device certificate. [`Replicator::check`] finds out whether it has a DKEK.
    fn serves(&self, token: &TokenInfo) -> std::result::Result<(), String> {
        self.find(token).map(drop)
    }

    fn is_logged_in(&self, token: &TokenInfo) -> Result<bool> {
        let status = self.card(token)?.pin_status(PinReference::User)?;
        Ok(status == PinStatus::LoggedIn)
    }

    fn check(&self, tokens: &[&TokenInfo]) -> Result<()> {
        let mut first = None;
        for token in tokens {
            let here = new_key::check_value(&mut self.card(token)?, &token.serial)?;
            let there = *first.get_or_insert(here);
            if here != there {
                let card = token.serial.clone();
                return Err(ProvisionError::OtherDkek { card, here, there }.into());
            }
        }
        Ok(())
    }

    fn expect(&self, token: &TokenInfo, id: &[u8]) -> Result<Blob> {
        let expected = NewKeySearch::note(&mut self.card(token)?, &token.serial, id)?;
        encoded(&expected)
    }

    fn take(&self, token: &TokenInfo, expected: &Blob) -> Result<Blob> {
        let expected = decoded::<NewKeySearch>(expected)?;
        let package = new_key::take(&mut self.card(token)?, &token.serial, &expected)?;
        encoded(&package)
    }

    fn put(&self, token: &TokenInfo, key: &Blob) -> Result<()> {
        let package = decoded::<KeyPackage>(key)?;
        Ok(new_key::put(
            &mut self.card(token)?,
            &token.serial,
            &package,
        )?)
    }

    fn sweep(&self, token: &TokenInfo, expected: &Blob) -> Result<bool> {
        let expected = decoded::<NewKeySearch>(expected)?;
        Ok(new_key::sweep(
            &mut self.card(token)?,
            &token.serial,
            &expected,
        )?)
    }
}

fn encoded(what: &impl Encode<()>) -> Result<Blob> {
    let bytes = minicbor::to_vec(what);
    let bytes = bytes.map_err(|e| Error::pool(Kind::Environment, e.to_string()))?;
    Ok(Blob(bytes.into()))
}

fn decoded<T: for<'b> Decode<'b, ()>>(bytes: &Blob) -> Result<T> {
    minicbor::decode(bytes).map_err(|e| {
        Error::pool(
            Kind::Environment,
            format!("the journal's copy of a key: {e}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_256_readers_are_remembered() {
        let mut others = HashMap::new();
        for number in 0..1000 {
            remember(&mut others, (format!("reader {number}"), 1), "6A82");
        }
        assert_eq!(others.len(), 256);
    }
}
