use hsmux_smartcard::tlv::{find, tlv};
use hsmux_smartcard::{CommandApdu, StatusWord};

use super::files::TOKEN_INFO;
use super::{done, pin};
use crate::chip::{CardSession, Chip, DEVICE_CERTIFICATES, Halt, Outcome};
use crate::dkek::DkekShares;
use crate::state::{PersistentState, PinRecord};

/// Option bit: the user PIN is a transport PIN.
const TRANSPORT: u16 = 0x0002;
/// Tries of the SO-PIN.
const SO_TRIES: u8 = 15;
/// Default and maximum tries of the user PIN.
const TRIES: u8 = 3;
const MAX_TRIES: u8 = 10;

/// INITIALIZE DEVICE: erases keys and files and sets the PINs, atomically.
/// If the card has an SO-PIN, field 82 must be that.
pub fn initialize(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let field = |tag| find(&command.data, tag).ok().map(|field| field.value);
    if [0x93, 0x95, 0x96]
        .into_iter()
        .any(|tag| field(tag).is_some())
    {
        // Authentication with public keys or fingerprints is not supported.
        return Err(StatusWord::FUNCTION_NOT_SUPPORTED.into());
    }
    let options = match field(0x80) {
        None => 0,
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        Some(_) => return Err(StatusWord::WRONG_DATA.into()),
    };
    let user = field(0x81).ok_or(StatusWord::WRONG_DATA)?;
    pin::acceptable_user_pin(user)?;
    let so = field(0x82)
        .filter(|so| so.len() == pin::SO_LEN)
        .ok_or(StatusWord::WRONG_DATA)?;
    let tries = one_byte(field(0x91))?.unwrap_or(TRIES);
    if !(1..=MAX_TRIES).contains(&tries) {
        return Err(StatusWord::WRONG_DATA.into());
    }
    let shares = one_byte(field(0x92))?;

    if chip.memory.state().so.is_some() {
        pin::try_so_pin(chip, so).map_err(wrong_so_pin)?;
    }
    let fresh = |value: &[u8], max, transport| PinRecord {
        value: value.into(),
        tries: max,
        max,
        transport,
    };
    let state = chip.memory.change();
    state.options = options;
    state.user = Some(fresh(user, tries, options & TRANSPORT != 0));
    state.so = Some(fresh(so, SO_TRIES, false));
    state.dkek = shares.map(DkekShares::new);
    state.keys.retain(|id, _| *id == 0);
    state.files.retain(|id, _| *id == DEVICE_CERTIFICATES);
    state.files.insert(TOKEN_INFO, token_info(state).into());
    chip.session = CardSession {
        selected: true,
        ..CardSession::default()
    };
    Ok(done())
}

/// A wrong SO-PIN is 6985 here, not 63Cx; the counter decreases anyway.
fn wrong_so_pin(halt: Halt) -> Halt {
    match halt {
        Halt::Status(status) if status != StatusWord::PIN_BLOCKED => {
            StatusWord::CONDITIONS_NOT_SATISFIED.into()
        }
        halt => halt,
    }
}

/// EF.TokenInfo until the host writes its own; its label warns that the card protects nothing.
fn token_info(state: &PersistentState) -> Vec<u8> {
    let version = tlv(0x02, &[&[0]]);
    let serial = tlv(0x04, &[state.serial.as_bytes()]);
    let maker = tlv(0x0C, &[b"hsmux virtual card"]);
    let label = tlv(0x80, &[b"Virtual card: protects nothing"]);
    // prnGeneration
    let flags = tlv(0x03, &[&[4, 0x10]]);
    tlv(0x30, &[&version, &serial, &maker, &label, &flags])
}

fn one_byte(field: Option<&[u8]>) -> Result<Option<u8>, StatusWord> {
    match field {
        None => Ok(None),
        Some(&[byte]) => Ok(Some(byte)),
        Some(_) => Err(StatusWord::WRONG_DATA),
    }
}
