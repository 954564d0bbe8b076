//! The slots of a module, and the selection of one.

use std::path::Path;

use hsmux_token::ck::{CK_TOKEN_INFO, CK_VERSION, CKF_REMOVABLE_DEVICE};
use hsmux_token::{Attributes, Error, Kind, Result, TokenFlags, TokenInfo};

use crate::SlotSelector;
use crate::library::{Library, LibraryRef, Slot};

/// A slot with a token in it.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// The slot's number; some modules change it at each start.
    pub id: u64,
    /// slotDescription.
    pub description: String,
    /// manufacturerID of the slot.
    pub manufacturer: String,
    /// The token, without its mechanisms.
    pub token: TokenInfo,
}

/// Lists the slots with a token, initialised or not.
pub fn slots(module: &Path) -> Result<Vec<SlotInfo>> {
    let library = LibraryRef::open(module)?;
    list(&library)
}

fn list(library: &Library) -> Result<Vec<SlotInfo>> {
    let mut slots = Vec::new();
    for id in library.slots()? {
        // The token was removed meanwhile.
        let (Ok(slot), Ok(token)) = (library.slot_info(id), library.token_info(id)) else {
            continue;
        };
        slots.push(SlotInfo {
            id,
            description: text(&slot.slotDescription),
            manufacturer: text(&slot.manufacturerID),
            token: described(&token),
        });
    }
    Ok(slots)
}

/// Returns the only slot that the selector matches.
pub(crate) fn choose(library: &Library, selector: &SlotSelector) -> Result<Slot> {
    let slots = list(library)?;
    let fits = |slot: &&SlotInfo| {
        // SoftHSM always lists one more, uninitialised token: only a slot id selects it.
        (slot.is_initialised() || selector.slot_id.is_some()) && slot.fits(selector)
    };
    let mut fitting = slots.iter().filter(fits);
    let problem = match (fitting.next(), fitting.next()) {
        (Some(slot), None) => return Ok(slot.id),
        (Some(_), Some(_)) => "more than one token fits",
        (None, _) => "no token fits",
    };
    let found: Vec<_> = slots.iter().map(ToString::to_string).collect();
    let found = match &found[..] {
        [] => "it has no token".to_owned(),
        found => format!("it has {}", found.join("; ")),
    };
    let path = library.path().display();
    Err(Error::token(
        Kind::Environment,
        format!("{problem} {selector} in {path}: {found}"),
    ))
}

/// Counts the objects of a token that are visible without a login.
pub fn public_objects(module: &Path, selector: &SlotSelector) -> Result<usize> {
    let library = LibraryRef::open(module)?;
    let session = library.open_session(choose(&library, selector)?)?;
    let found = library.find(session, &Attributes::default(), usize::MAX);
    library.close_session(session)?;
    Ok(found?.len())
}

fn same(wanted: Option<&str>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

impl SlotInfo {
    /// Whether its token is initialised.
    pub fn is_initialised(&self) -> bool {
        self.token.flags.contains(TokenFlags::TOKEN_INITIALIZED)
    }

    /// Whether a selector matches the token in this slot.
    pub fn fits(&self, selector: &SlotSelector) -> bool {
        selector.matches_token(&self.token, Some(self.id))
            && same(selector.slot_description.as_deref(), &self.description)
            && same(selector.slot_manufacturer.as_deref(), &self.manufacturer)
    }
}

impl std::fmt::Display for SlotInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, token) = (self.id, &self.token);
        if self.is_initialised() {
            let (label, serial) = (&token.label, &token.serial);
            write!(f, "{label:?} (serial {serial}, slot-id {id})")
        } else {
            write!(f, "a token that is not initialised (slot-id {id})")
        }
    }
}

/// Reads all data of a token in a slot.
pub(crate) fn describe(library: &Library, slot: Slot, lanes: u32) -> Result<TokenInfo> {
    let module = library.info()?;
    Ok(TokenInfo {
        library: text(&module.libraryDescription),
        library_version: version(module.libraryVersion),
        mechanisms: library.mechanisms(slot)?,
        lanes,
        slot: removable(library, slot)?,
        ..described(&library.token_info(slot)?)
    })
}

/// The slot's name, if the token is removable.
fn removable(library: &Library, slot: Slot) -> Result<Option<String>> {
    let info = library.slot_info(slot)?;
    let removable = info.flags & CKF_REMOVABLE_DEVICE != 0;
    Ok(removable.then(|| text(&info.slotDescription)))
}

pub(crate) fn described(info: &CK_TOKEN_INFO) -> TokenInfo {
    TokenInfo {
        label: text(&info.label),
        manufacturer: text(&info.manufacturerID),
        model: text(&info.model),
        serial: text(&info.serialNumber),
        flags: TokenFlags::from_bits_retain(info.flags),
        hardware: version(info.hardwareVersion),
        firmware: version(info.firmwareVersion),
        pin_length: (info.ulMinPinLen, info.ulMaxPinLen),
        ..TokenInfo::default()
    }
}

fn version(version: CK_VERSION) -> (u8, u8) {
    (version.major, version.minor)
}

/// Trims a text padded with blanks; some modules pad with zeros.
fn text(padded: &[u8]) -> String {
    let text = String::from_utf8_lossy(padded);
    text.trim_end_matches(['\0', ' ']).to_owned()
}
