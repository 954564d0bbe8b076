//! Copies a new key from its card to others, beside the programs that work on them.
//!
//! A login belongs to the card, not to a connection: the transactions here use the login of the program that has the
//! card in use. No application is selected, since that would end the login, and no PIN is shown. A card without a
//! login is refused.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use super::package::{KeyPackage, remove};
use super::{ProvisionError, Result, domain};
use crate::dkek::CheckValue;
use crate::pkcs15::KeyDescription;
use crate::{Card, CardChannel, FileKind, KeyReference, PinReference, PinStatus};

/// The numbers that a card can give to keys; 0 is its own.
const NUMBERS: std::ops::RangeInclusive<u8> = 1..=u8::MAX;

/// Finds the new key of a card among the keys that were there before.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct NewKeySearch {
    /// The new key's CKA_ID.
    #[cbor(n(0), with = "minicbor::bytes")]
    id: Vec<u8>,
    /// Keys that are not new.
    #[n(1)]
    before: BTreeSet<KeyReference>,
}

impl NewKeySearch {
    /// For a key with this CKA_ID that is about to be made or put here.
    pub fn note<C: CardChannel>(card: &mut Card<C>, serial: &str, id: &[u8]) -> Result<Self> {
        in_use(card, serial, |card| {
            Ok(Self {
                id: id.to_vec(),
                before: keys(card)?,
            })
        })
    }

    /// New keys with the CKA_ID; with `halves` also keys without a description, which programs do not show.
    fn among<C: CardChannel>(&self, card: &mut Card<C>, halves: bool) -> Result<Vec<KeyReference>> {
        let mut found = Vec::new();
        for key in keys(card)?.difference(&self.before) {
            if id_of(card, *key)?.map_or(halves, |id| id == self.id) {
                found.push(*key);
            }
        }
        Ok(found)
    }
}

/// The key check value of a card whose DKEK is complete.
pub fn check_value<C: CardChannel>(card: &mut Card<C>, serial: &str) -> Result<CheckValue> {
    in_use(card, serial, |card| domain::check_value(card, serial))
}

/// Takes the new key from the card where it was made.
pub fn take<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    expected: &NewKeySearch,
) -> Result<KeyPackage> {
    in_use(card, serial, |card| {
        domain::check_value(card, serial)?;
        match *expected.among(card, false)? {
            [key] => KeyPackage::take(card, serial, key),
            _ => Err(ProvisionError::NotOneNewKey {
                card: serial.to_owned(),
                id: expected.id.clone(),
            }),
        }
    })
}

/// Puts a key onto another card, proved, under its own number or, where that is taken, the first that is
/// free. One that is there already, or half there, is completed.
pub fn put<C: CardChannel>(card: &mut Card<C>, serial: &str, package: &KeyPackage) -> Result<()> {
    in_use(card, serial, |card| {
        domain::expect(card, serial, package.key.check_value())?;
        let taken = keys(card)?;
        let id = description_id(package.description.as_deref());
        for key in &taken {
            if id_of(card, *key)?.is_none_or(|there| Some(there) == id) {
                match numbered(package, *key).install(card, serial, true) {
                    Err(ProvisionError::Taken { .. }) => {}
                    outcome => return outcome.map(drop),
                }
            }
        }
        let wanted = std::iter::once(package.reference.0).chain(NUMBERS);
        let mut free = wanted.map(KeyReference).filter(|key| !taken.contains(key));
        let key = free.next().ok_or_else(|| ProvisionError::Taken {
            card: serial.to_owned(),
            key: package.reference,
        })?;
        numbered(package, key)
            .install(card, serial, false)
            .map(drop)
    })
}

/// Takes away what was made or put here since, whole or half; says whether there was something.
pub fn sweep<C: CardChannel>(
    card: &mut Card<C>,
    serial: &str,
    expected: &NewKeySearch,
) -> Result<bool> {
    in_use(card, serial, |card| {
        let new = expected.among(card, true)?;
        for key in &new {
            remove(card, *key)?;
        }
        Ok(!new.is_empty())
    })
}

/// Runs `work` in a transaction on a card that another program is logged in to.
fn in_use<C: CardChannel, T>(
    card: &mut Card<C>,
    serial: &str,
    work: impl FnOnce(&mut Card<C>) -> Result<T>,
) -> Result<T> {
    card.exclusively(|card| {
        let status = card.pin_status(PinReference::User)?;
        if status != PinStatus::LoggedIn {
            let card = serial.to_owned();
            return Err(ProvisionError::NotInUse { card });
        }
        work(card)
    })
}

fn keys<C: CardChannel>(card: &mut Card<C>) -> Result<BTreeSet<KeyReference>> {
    let files = card.enumerate()?.into_iter();
    let keys = files.filter(|file| file.kind() == Some(FileKind::Key) && file.number() != 0);
    Ok(keys.map(|file| KeyReference(file.number())).collect())
}

/// CKA_ID by the key's description; nothing where it has none.
fn id_of<C: CardChannel>(card: &mut Card<C>, key: KeyReference) -> Result<Option<Vec<u8>>> {
    let description = card.read_file_if_any(key.file(FileKind::KeyDescription))?;
    let description = description.filter(|content| !content.is_empty());
    Ok(description.map(|content| description_id(Some(&content)).unwrap_or_default()))
}

fn description_id(description: Option<&[u8]>) -> Option<Vec<u8>> {
    let parsed = KeyDescription::parse(description?).ok()?;
    Some(parsed.id)
}

fn numbered(package: &KeyPackage, reference: KeyReference) -> KeyPackage {
    KeyPackage {
        reference,
        ..package.clone()
    }
}
