//! New keys from one SmartCard-HSM to the others, by the DKEK that they share.
//!
//! Over PC/SC, beside the workers: a login is the card's, so the worker's own is what is used.

use std::collections::HashMap;

use hsmux_pool::replicate::Replicator;
use hsmux_smartcard::pcsc::{CardState, Channel, Limits, readers};
use hsmux_smartcard::provision::newborn::{self, Expected};
use hsmux_smartcard::provision::{KeyPackage, ProvisionError, report};
use hsmux_smartcard::{Card, Pin, PinStatus};
use hsmux_token::{Blob, Error, Kind, Result, TokenInfo};
use minicbor::{Decode, Encode};
use parking_lot::Mutex;

/// The cards of this machine's readers.
#[derive(Default)]
pub struct Dkek {
    /// In which reader a card was last, by its serial number.
    readers: Mutex<HashMap<String, String>>,
}

impl Dkek {
    /// The card with the token's serial number.
    fn card(&self, token: &TokenInfo) -> Result<Card<Channel>> {
        let serial = &token.serial;
        let last = self.readers.lock().get(serial).cloned();
        if let Some(card) = last.and_then(|reader| the_card(&reader, serial)) {
            return Ok(card);
        }
        let all = readers().map_err(ProvisionError::from)?;
        let mut there = all
            .into_iter()
            .filter(|reader| reader.card != CardState::Empty);
        let found = there.find_map(|reader| Some((the_card(&reader.name, serial)?, reader.name)));
        let (card, reader) = found.ok_or_else(|| {
            Error::token(
                Kind::Lost,
                format!("card {serial} is in none of the readers that the daemon sees"),
            )
        })?;
        self.readers.lock().insert(serial.clone(), reader);
        Ok(card)
    }
}

/// The card in a reader, if it is this one.
fn the_card(reader: &str, serial: &str) -> Option<Card<Channel>> {
    let channel = Channel::open(reader, Limits::default()).ok()?;
    let mut card = Card::new(channel);
    let is = report::serial(&mut card).ok()?;
    (is == serial).then_some(card)
}

impl Replicator for Dkek {
    /// OpenSC and sc-hsm-embedded name the card's maker.
    fn serves(&self, token: &TokenInfo) -> bool {
        let maker = token.manufacturer.to_ascii_lowercase();
        maker.contains("cardcontact")
    }

    fn is_logged_in(&self, token: &TokenInfo) -> Result<bool> {
        let status = self.card(token)?.pin_status(Pin::User)?;
        Ok(status == PinStatus::LoggedIn)
    }

    fn check(&self, tokens: &[&TokenInfo]) -> Result<()> {
        let mut first = None;
        for token in tokens {
            let here = newborn::check_value(&mut self.card(token)?, &token.serial)?;
            let there = *first.get_or_insert(here);
            if here != there {
                let card = token.serial.clone();
                return Err(ProvisionError::OtherDkek { card, here, there }.into());
            }
        }
        Ok(())
    }

    fn expect(&self, token: &TokenInfo, id: &[u8]) -> Result<Blob> {
        let expected = Expected::note(&mut self.card(token)?, &token.serial, id)?;
        encoded(&expected)
    }

    fn take(&self, token: &TokenInfo, expected: &Blob) -> Result<Blob> {
        let expected = decoded::<Expected>(expected)?;
        let package = newborn::take(&mut self.card(token)?, &token.serial, &expected)?;
        encoded(&package)
    }

    fn put(&self, token: &TokenInfo, key: &Blob) -> Result<()> {
        let package = decoded::<KeyPackage>(key)?;
        Ok(newborn::put(
            &mut self.card(token)?,
            &token.serial,
            &package,
        )?)
    }

    fn sweep(&self, token: &TokenInfo, expected: &Blob) -> Result<bool> {
        let expected = decoded::<Expected>(expected)?;
        Ok(newborn::sweep(
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
