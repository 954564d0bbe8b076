use hsmux_smartcard::tlv::tlv;
use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};

use super::files::{self, KEYS};
use crate::chip::{CardSession, Chip, Outcome};

/// E8 2B 06 01 04 01 81 C3 1F 02 01: an OID of CardContact.
const AID: &[u8] = &[
    0xE8, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x81, 0xC3, 0x1F, 0x02, 0x01,
];

/// Type (01: the demo applet, the closest match) and version, as in a JCOP 4 card.
const TYPE_AND_VERSION: [u8; 3] = [0x01, 3, 4];

/// SELECT (ISO/IEC 7816-4, section 11.2.2): the application by name, or a file by identifier.
/// Selecting the application logs out.
pub fn select(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    match (command.p1, chip.session.selected) {
        (0x04, _) if !command.data.is_empty() && AID.starts_with(&command.data) => {
            chip.session = CardSession {
                selected: true,
                ..CardSession::default()
            };
            Ok(ResponseApdu::ok(application(chip.memory.state().options)))
        }
        (0x00, true) => {
            let id = files::identifier(&command.data).ok_or(StatusWord::WRONG_LENGTH)?;
            let size = files::size(chip, id).ok_or(StatusWord::FILE_NOT_FOUND)?;
            chip.session.current = Some(id);
            Ok(ResponseApdu::ok(file(id, size)))
        }
        (0x04, _) | (_, false) => Err(StatusWord::FILE_NOT_FOUND.into()),
        (_, true) => Err(StatusWord::WRONG_PARAMETERS.into()),
    }
}

/// The application's control parameters; the last bytes of 85 are options, type and version.
fn application(options: u16) -> Vec<u8> {
    let properties = [&options.to_be_bytes()[..], &TYPE_AND_VERSION].concat();
    tlv(
        0x62,
        &[
            &tlv(0x82, &[&[0x38]]),
            &tlv(0x84, &[AID]),
            &tlv(0x85, &[&properties]),
        ],
    )
}

/// A file's control parameters: size, kind (internal for keys, else working, transparent), identifier.
fn file(id: u16, size: usize) -> Vec<u8> {
    let size = (size as u16).to_be_bytes();
    let kind = if id >> 8 == KEYS { 0x08 } else { 0x01 };
    tlv(
        0x62,
        &[
            &tlv(0x80, &[&size]),
            &tlv(0x82, &[&[kind]]),
            &tlv(0x83, &[&id.to_be_bytes()]),
        ],
    )
}
