use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};

use super::done;
use super::files::WRAPPED_KEY;
use crate::chip::{Chip, Outcome};
use crate::dkek::CompleteDkek;
use crate::state::PersistentState;
use crate::timing::Operation;

/// Algorithm of WRAP KEY; a key with a list of algorithms must include it.
const WRAP: u8 = 0x92;
/// Algorithm of UNWRAP KEY.
const UNWRAP: u8 = 0x93;

/// IMPORT DKEK SHARE; without data it returns the state of the DKEK.
pub fn import_share(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let support = StatusWord::INSTRUCTION_NOT_SUPPORTED;
    if chip.memory.state().dkek.is_none() {
        return Err(support.into());
    }
    if !command.data.is_empty() {
        let shares = chip.memory.change().dkek.as_mut().ok_or(support)?;
        shares.import(&command.data)?;
    }
    let shares = chip.memory.state().dkek.as_ref().ok_or(support)?;
    Ok(ResponseApdu::ok(shares.status()))
}

/// WRAP KEY: a key as a blob under the DKEK.
pub fn wrap(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    if (command.p1, command.p2) == (0, WRAP) {
        // The device's own key cannot be exported.
        return Err(StatusWord::NOT_LOGGED_IN.into());
    }
    if command.p2 != WRAP {
        return Err(StatusWord::WRONG_PARAMETERS.into());
    }
    let state = chip.memory.state();
    let dkek = complete(state)?;
    let record = state.key(command.p1)?;
    if !record.allows(WRAP) || record.uses.is_some() {
        // A copy would circumvent the key's use counter.
        return Err(StatusWord::CONDITIONS_NOT_SATISFIED.into());
    }
    let blob = dkek.wrap(record).ok_or(StatusWord::EXECUTION_ERROR)?;
    chip.work = Some((Operation::Wrap, record.key.kind()));
    Ok(ResponseApdu::ok(blob))
}

/// UNWRAP KEY: from a blob in the command, or from a file, as newer hosts do.
pub fn unwrap(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    if command.p2 != UNWRAP || command.p1 == 0 {
        return Err(StatusWord::WRONG_PARAMETERS.into());
    }
    let state = chip.memory.state();
    let dkek = complete(state)?;
    let in_file = command.data.is_empty();
    let blob = if in_file {
        let file = state.files.get(&WRAPPED_KEY);
        file.ok_or(StatusWord::FILE_NOT_FOUND)?
    } else {
        &command.data[..]
    };
    chip.free_key_id(command.p1)?;
    let record = dkek.unwrap(blob).ok_or(StatusWord::WRONG_DATA)?;
    chip.work = Some((Operation::Unwrap, record.key.kind()));
    let state = chip.memory.change();
    state.keys.insert(command.p1, record);
    if in_file {
        state.files.remove(&WRAPPED_KEY);
    }
    chip.fits()?;
    Ok(done())
}

/// The DKEK; a card without one does not know these commands.
fn complete(state: &PersistentState) -> Result<CompleteDkek<'_>, StatusWord> {
    let shares = state.dkek.as_ref();
    shares
        .ok_or(StatusWord::INSTRUCTION_NOT_SUPPORTED)?
        .complete()
}
