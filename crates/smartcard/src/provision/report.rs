//! The content of a card, as far as it is readable without a PIN.

use super::Result;
use crate::dkek::CheckValue;
use crate::pkcs15::{KeyDescription, KeyFamily, TokenInfo};
use crate::{
    Card, CardChannel, FileId, FileKind, KeyReference, PinReference, PinStatus, StatusWord, cvc,
};

/// A card.
#[derive(Clone, Debug)]
pub struct CardReport {
    /// The reader that it is in.
    pub reader: String,
    /// Its serial number.
    pub serial: String,
    /// Its label; empty where it has none.
    pub label: String,
    /// Major and minor version of its application; nothing where it was not selected.
    pub version: Option<(u8, u8)>,
    /// The user's PIN.
    pub pin: PinStatus,
    /// The security officer's.
    pub so_pin: PinStatus,
    /// The DKEK.
    pub dkek: DkekState,
    /// Its keys, without the device key.
    pub keys: Vec<KeyReport>,
}

/// The DKEK of a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DkekState {
    /// Keys cannot leave or enter it.
    None,
    /// So many shares are missing, of so many.
    Missing(u8, u8),
    /// Complete.
    Complete(CheckValue),
}

/// A key.
#[derive(Clone, Debug)]
pub struct KeyReport {
    /// Its number.
    pub reference: KeyReference,
    /// CKA_LABEL.
    pub label: String,
    /// CKA_ID.
    pub id: Vec<u8>,
    /// RSA, EC or AES; nothing where it has no description: half a key, or one of a program that writes none.
    pub family: Option<KeyFamily>,
    /// Its size in bits.
    pub bits: Option<u32>,
    /// True for a certificate; false for the request that the key was made with, or nothing.
    pub certificate: bool,
}

/// The serial number, from the card's own certificate.
///
/// SELECT logs everybody out, so it is sent only where the application does not answer without: a card that
/// somebody uses has it selected.
pub fn serial<C: CardChannel>(card: &mut Card<C>) -> Result<String> {
    card.exclusively(|card| match read_serial(card) {
        Err(error) if error.is_answer() => {
            card.select()?;
            read_serial(card)
        }
        serial => serial,
    })
}

/// The same of a card in use, whose application is selected: nothing is selected, so a card of another kind is not
/// disturbed.
pub fn serial_as_selected<C: CardChannel>(card: &mut Card<C>) -> Result<String> {
    card.exclusively(|card| read_serial(card))
}

fn read_serial<C: CardChannel>(card: &mut Card<C>) -> Result<String> {
    const NAME: &str = "READ BINARY (device certificates)";
    let file = card.read_file(FileId::DEVICE_CERTIFICATES)?;
    let certificate = cvc::Certificate::parse(&file);
    let certificate = certificate.map_err(|error| card.bad_answer(NAME, error))?;
    Ok(certificate.serial().to_owned())
}

/// Reads a card; no try of any PIN is spent.
///
/// `quietly`: without SELECT, which would end the login. The version is then unknown, and a PIN may be "logged in" by
/// another program.
pub fn report<C: CardChannel>(card: &mut Card<C>, quietly: bool) -> Result<CardReport> {
    let serial = serial(card)?;
    card.exclusively(|card| {
        let version = if quietly {
            None
        } else {
            Some(card.select()?.version)
        };
        let info = card.read_file_if_any(FileId::TOKEN_INFO)?;
        let info = info.and_then(|content| TokenInfo::parse(&content).ok());
        Ok(CardReport {
            reader: card.name().to_owned(),
            serial,
            label: info.map(|info| info.label).unwrap_or_default(),
            version,
            pin: card.pin_status(PinReference::User)?,
            so_pin: card.pin_status(PinReference::SecurityOfficer)?,
            dkek: dkek(card)?,
            keys: keys(card)?,
        })
    })
}

fn dkek<C: CardChannel>(card: &mut Card<C>) -> Result<DkekState> {
    Ok(match card.dkek_status() {
        Ok(None) => DkekState::None,
        Ok(Some(status)) if status.missing > 0 => DkekState::Missing(status.missing, status.shares),
        Ok(Some(status)) => DkekState::Complete(CheckValue(status.key_check_value)),
        // A card that was never initialised.
        Err(error) if error.status() == Some(StatusWord::CONDITIONS_NOT_SATISFIED) => {
            DkekState::None
        }
        Err(error) => return Err(error.into()),
    })
}

fn keys<C: CardChannel>(card: &mut Card<C>) -> Result<Vec<KeyReport>> {
    let mut files = card.enumerate()?;
    files.sort_unstable();
    let is_key = |file: &FileId| file.kind() == Some(FileKind::Key) && file.number() != 0;
    files.retain(is_key);
    let keys = files.into_iter().map(|file| KeyReference(file.number()));
    keys.map(|reference| key(card, reference)).collect()
}

fn key<C: CardChannel>(card: &mut Card<C>, reference: KeyReference) -> Result<KeyReport> {
    let description = card.read_file_if_any(reference.file(FileKind::KeyDescription))?;
    let description = description.and_then(|content| KeyDescription::parse(&content).ok());
    let certificate = card.read_file_if_any(reference.file(FileKind::Certificate))?;
    let family = description.as_ref().map(|key| key.family);
    let bits = description.as_ref().and_then(|key| key.bits);
    let (label, id) = description
        .map(|key| (key.object.label, key.id))
        .unwrap_or_default();
    Ok(KeyReport {
        reference,
        label,
        id,
        family,
        bits,
        certificate: certificate.is_some_and(|content| content.first() == Some(&0x30)),
    })
}
