use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord, tlv};

use super::done;
use crate::chip::{Chip, DEVICE_CERTIFICATES, Outcome};

/// First byte of the file identifiers of keys; the second is the key's id.
pub const KEYS: u16 = 0xCC;
/// First byte of the file identifiers of keys' certificates and requests.
pub const REQUESTS: u16 = 0xCE;
/// The file into which hosts write a wrapped key before UNWRAP KEY.
pub const WRAPPED_KEY: u16 = 0x2F10;
/// EF.TokenInfo (ISO/IEC 7816-15, section 8.10).
pub const TOKEN_INFO: u16 = 0x2F03;
/// First byte of the file identifiers of data that only the user may read.
const PROTECTED: u16 = 0xCD;
/// First bytes of file identifiers that hosts may create: descriptions of keys, certificates and data,
/// CA certificates, protected data, certificates of keys, data.
const WRITABLE: [u16; 7] = [0xC4, 0xC8, 0xC9, 0xCA, PROTECTED, REQUESTS, 0xCF];
/// The maximum length of a file: an offset has two bytes.
const LONGEST: usize = 0x8000;

/// ENUMERATE OBJECTS: the identifiers of keys and files.
#[expect(clippy::unnecessary_wraps, reason = "as all commands")]
pub fn enumerate(chip: &mut Chip, _: &CommandApdu) -> Outcome {
    let state = chip.memory.state();
    let keys = state.keys.keys().map(|id| KEYS << 8 | u16::from(*id));
    let files = state
        .files
        .keys()
        .copied()
        .filter(|id| WRITABLE.contains(&(id >> 8)));
    let list: Vec<u8> = keys.chain(files).flat_map(u16::to_be_bytes).collect();
    Ok(ResponseApdu::ok(list))
}

/// READ BINARY with odd instruction (ISO/IEC 7816-4, section 11.3.3).
pub fn read_binary(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let id = target(chip, command)?;
    let secret = id >> 8 == KEYS || id >> 8 == PROTECTED && !chip.session.user;
    let content = chip.memory.state().files.get(&id);
    if secret && size(chip, id).is_some() {
        return Err(StatusWord::NOT_LOGGED_IN.into());
    }
    let content = content.ok_or(StatusWord::FILE_NOT_FOUND)?;
    let rest = content
        .get(offset(&command.data)?..)
        .ok_or(StatusWord::WRONG_OFFSET)?;
    let ne = command.ne.unwrap_or(0);
    let status = if rest.len() < ne {
        StatusWord::END_OF_FILE
    } else {
        StatusWord::OK
    };
    Ok(ResponseApdu {
        status,
        ..ResponseApdu::ok(&rest[..rest.len().min(ne)])
    })
}

/// UPDATE BINARY with odd instruction (section 11.3.5). At offset 0 it replaces the file, creating it if missing;
/// at others it overwrites and appends.
pub fn update_binary(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let id = target(chip, command)?;
    if !WRITABLE.contains(&(id >> 8)) && ![TOKEN_INFO, WRAPPED_KEY].contains(&id) {
        return Err(StatusWord::NOT_LOGGED_IN.into());
    }
    let offset = offset(&command.data)?;
    let data = tlv::find(&command.data, 0x53)
        .map_err(|_| StatusWord::WRONG_TLV_LENGTH)?
        .value;
    let mut content = match (chip.memory.state().files.get(&id), offset) {
        (_, 0) => Vec::new(),
        (Some(content), _) if offset <= content.len() => content.to_vec(),
        (Some(_), _) => return Err(StatusWord::WRONG_OFFSET.into()),
        (None, _) => return Err(StatusWord::FILE_NOT_FOUND.into()),
    };
    let end = offset + data.len();
    if end > LONGEST {
        return Err(StatusWord::NOT_ENOUGH_MEMORY.into());
    }
    content.resize(end.max(content.len()), 0);
    content[offset..end].copy_from_slice(data);
    chip.memory.change().files.insert(id, content.into());
    chip.fits()?;
    chip.session.current = Some(id);
    Ok(done())
}

/// DELETE FILE (ISO/IEC 7816-9, section 7.2): a file or a key.
pub fn delete(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    if command.p1 != 0x02 {
        return Err(StatusWord::WRONG_PARAMETERS.into());
    }
    let id = match &command.data[..] {
        [] => chip.session.current,
        data => identifier(data),
    };
    let id = id.ok_or(StatusWord::WRONG_LENGTH)?;
    size(chip, id).ok_or(StatusWord::FILE_NOT_FOUND)?;
    if id == DEVICE_CERTIFICATES || id == KEYS << 8 {
        return Err(StatusWord::NOT_LOGGED_IN.into());
    }
    let state = chip.memory.change();
    if id >> 8 == KEYS {
        state.keys.remove(&(id as u8));
    } else {
        state.files.remove(&id);
    }
    chip.session.current = None;
    Ok(done())
}

/// A file identifier in command data.
pub fn identifier(data: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(data.try_into().ok()?))
}

/// The length of a file, or of a key's placeholder.
pub fn size(chip: &Chip, id: u16) -> Option<usize> {
    let state = chip.memory.state();
    match id >> 8 {
        KEYS => state.keys.get(&(id as u8)).map(|record| record.key.size()),
        _ => state.files.get(&id).map(|content| content.len()),
    }
}

/// The file of P1 and P2, or the current one.
fn target(chip: &Chip, command: &CommandApdu) -> Result<u16, StatusWord> {
    match u16::from_be_bytes([command.p1, command.p2]) {
        0 => chip.session.current.ok_or(StatusWord::FILE_NOT_FOUND),
        id => Ok(id),
    }
}

/// The offset data object: 54, with one or two bytes.
fn offset(data: &[u8]) -> Result<usize, StatusWord> {
    let offset = tlv::find(data, 0x54)
        .map_err(|_| StatusWord::WRONG_DATA)?
        .value;
    match *offset {
        [low] => Ok(usize::from(low)),
        [high, low] => Ok(usize::from(u16::from_be_bytes([high, low]))),
        _ => Err(StatusWord::WRONG_DATA),
    }
}
