use hsmux_smartcard::{CommandApdu, StatusWord};

use super::done;
use crate::chip::{Chip, Halt, Outcome};
use crate::state::{PersistentState, PinRecord};

/// Reference of the user PIN.
const USER: u8 = 0x81;
/// Reference of the SO-PIN.
const SO: u8 = 0x88;
/// Length of the SO-PIN in bytes.
pub const SO_LEN: usize = 8;
/// Option bit: RESET RETRY COUNTER is available.
pub const RESET_ENABLED: u16 = 0x0001;

/// VERIFY (ISO/IEC 7816-4, section 11.6.6). Without data it queries the state, which costs no try.
pub fn verify(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let reference = reference(command)?;
    let pin = pin(chip.memory.state(), reference)?;
    if pin.transport {
        return Err(StatusWord::REFERENCE_UNUSABLE.into());
    }
    if !command.data.is_empty() {
        try_pin(chip, reference, &command.data)?;
        return Ok(done());
    }
    match (chip.session.user && reference == USER, pin.tries) {
        (true, _) => Ok(done()),
        (false, 0) => Err(StatusWord::PIN_BLOCKED.into()),
        (false, tries) => Err(StatusWord::tries(tries).into()),
    }
}

/// CHANGE REFERENCE DATA (section 11.6.7): the old PIN, then the new one.
pub fn change(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let reference = reference(command)?;
    let len = pin(chip.memory.state(), reference)?.value.len();
    let (old, new) = command
        .data
        .split_at_checked(len)
        .ok_or(StatusWord::WRONG_LENGTH)?;
    acceptable(reference, new)?;
    try_pin(chip, reference, old)?;
    set(chip, reference, new)
}

/// RESET RETRY COUNTER (section 11.6.10): the SO-PIN, then a new user PIN; with P1 01 only the SO-PIN.
pub fn reset_retry_counter(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    if command.p2 != USER {
        return Err(StatusWord::REFERENCE_NOT_FOUND.into());
    }
    let state = chip.memory.state();
    pin(state, USER)?;
    if state.options & RESET_ENABLED == 0 {
        return Err(StatusWord::CONDITIONS_NOT_SATISFIED.into());
    }
    let (so, new) = command
        .data
        .split_at_checked(SO_LEN)
        .ok_or(StatusWord::WRONG_LENGTH)?;
    match command.p1 {
        0x00 => acceptable(USER, new)?,
        0x01 if new.is_empty() => {}
        0x01 => return Err(StatusWord::WRONG_LENGTH.into()),
        _ => return Err(StatusWord::WRONG_PARAMETERS.into()),
    }
    try_pin(chip, SO, so)?;
    if command.p1 == 0x00 {
        return set(chip, USER, new);
    }
    let user = slot(chip.memory.change(), USER)?;
    user.tries = user.max;
    Ok(done())
}

/// Takes a try off the counter, commits that, compares, and restores the counter on success.
fn try_pin(chip: &mut Chip, reference: u8, value: &[u8]) -> Result<(), Halt> {
    let pin = slot(chip.memory.change(), reference)?;
    pin.tries = pin.tries.checked_sub(1).ok_or(StatusWord::PIN_BLOCKED)?;
    let left = pin.tries;
    if reference == USER {
        chip.session.user = false;
    }
    chip.memory.commit()?;
    let pin = slot(chip.memory.change(), reference)?;
    if *pin.value != *value {
        return Err(StatusWord::tries(left).into());
    }
    pin.tries = pin.max;
    let transport = pin.transport;
    chip.memory.commit()?;
    if reference == USER {
        chip.session.user = !transport;
    }
    Ok(())
}

/// Takes a try at the SO-PIN. INITIALIZE DEVICE has a status of its own for a wrong one.
pub fn try_so_pin(chip: &mut Chip, value: &[u8]) -> Result<(), Halt> {
    try_pin(chip, SO, value)
}

fn set(chip: &mut Chip, reference: u8, value: &[u8]) -> Outcome {
    let pin = slot(chip.memory.change(), reference)?;
    pin.value = value.into();
    pin.tries = pin.max;
    pin.transport = false;
    if reference == USER {
        chip.session.user = true;
    }
    Ok(done())
}

/// Checks a PIN's length: 6 to 16 bytes for the user, 8 for the SO.
pub fn acceptable(reference: u8, pin: &[u8]) -> Result<(), StatusWord> {
    let fine = match reference {
        SO => pin.len() == SO_LEN,
        _ => (6..=16).contains(&pin.len()),
    };
    if fine {
        Ok(())
    } else {
        Err(StatusWord::WRONG_DATA)
    }
}

/// Checks a user PIN.
pub fn acceptable_user_pin(pin: &[u8]) -> Result<(), StatusWord> {
    acceptable(USER, pin)
}

/// Reads P2 as one of the two references, with P1 00. Others, such as fingerprints, are not supported.
fn reference(command: &CommandApdu) -> Result<u8, StatusWord> {
    match (command.p1, command.p2) {
        (0x00, USER | SO) => Ok(command.p2),
        (0x00, _) => Err(StatusWord::REFERENCE_NOT_FOUND),
        _ => Err(StatusWord::WRONG_PARAMETERS),
    }
}

/// The PIN; missing until the card is initialised.
fn pin(state: &PersistentState, reference: u8) -> Result<&PinRecord, StatusWord> {
    let pin = if reference == USER {
        &state.user
    } else {
        &state.so
    };
    pin.as_ref().ok_or(StatusWord::REFERENCE_NOT_FOUND)
}

fn slot(state: &mut PersistentState, reference: u8) -> Result<&mut PinRecord, StatusWord> {
    let pin = if reference == USER {
        &mut state.user
    } else {
        &mut state.so
    };
    pin.as_mut().ok_or(StatusWord::REFERENCE_NOT_FOUND)
}
