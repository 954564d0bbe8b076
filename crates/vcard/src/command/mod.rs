//! The commands, one row each (SmartCard-HSM; ISO/IEC 7816-4, -8 and -9).

mod dkek;
mod files;
mod generate;
mod initialize;
mod pin;
mod private;
mod select;
mod symmetric;

use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};

use crate::chip::{Chip, Outcome};

type Run = fn(&mut Chip, &CommandApdu) -> Outcome;

/// Access condition of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// None, even before the application is selected.
    Anybody,
    /// The application is selected.
    Everybody,
    /// The user PIN is verified.
    User,
}

/// Class, instruction, access condition and function.
const COMMANDS: &[(u8, u8, For, Run)] = &[
    (0x00, 0xA4, For::Anybody, select::select),
    (0x80, 0x58, For::Everybody, files::enumerate),
    (0x00, 0xB1, For::Everybody, files::read_binary),
    (0x00, 0xD7, For::User, files::update_binary),
    (0x00, 0xE4, For::User, files::delete),
    (0x00, 0x20, For::Everybody, pin::verify),
    (0x00, 0x24, For::Everybody, pin::change),
    (0x00, 0x2C, For::Everybody, pin::reset_retry_counter),
    (0x00, 0x84, For::Everybody, challenge),
    (0x80, 0x50, For::Everybody, initialize::initialize),
    (0x80, 0x52, For::Everybody, dkek::import_share),
    (0x80, 0x72, For::User, dkek::wrap),
    (0x80, 0x74, For::User, dkek::unwrap),
    (0x00, 0x46, For::User, generate::key_pair),
    (0x00, 0x48, For::User, generate::secret_key),
    (0x80, 0x76, For::User, generate::derive),
    (0x80, 0x68, For::User, private::sign),
    (0x80, 0x62, For::User, private::decrypt),
    (0x80, 0x78, For::User, symmetric::cipher),
    // Authentication with public keys is not supported.
    (0x00, 0x22, For::Everybody, unsupported),
    (0x00, 0x2A, For::Everybody, unsupported),
];

/// Finds the command and runs it, if its access condition holds.
pub fn run(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let &CommandApdu { cla, ins, .. } = command;
    if cla & 0x10 != 0 {
        return Err(StatusWord::CHAINING_NOT_SUPPORTED.into());
    }
    if ![0x00, 0x80].contains(&cla) {
        return Err(StatusWord::CLASS_NOT_SUPPORTED.into());
    }
    let row = COMMANDS.iter().find(|row| (row.0, row.1) == (cla, ins));
    let &(_, _, who, run) = row.ok_or(StatusWord::INSTRUCTION_NOT_SUPPORTED)?;
    if who != For::Anybody && !chip.session.selected {
        return Err(StatusWord::INSTRUCTION_NOT_SUPPORTED.into());
    }
    if who == For::User && !chip.session.user {
        return Err(StatusWord::NOT_LOGGED_IN.into());
    }
    run(chip, command)
}

/// GET CHALLENGE: random bytes.
fn challenge(_: &mut Chip, command: &CommandApdu) -> Outcome {
    // The maximum of a card's answer.
    const MAX: usize = 1024;
    let mut bytes = vec![0; command.ne.ok_or(StatusWord::WRONG_LENGTH)?.min(MAX)];
    crate::crypto::fill(&mut bytes);
    Ok(ResponseApdu::ok(bytes))
}

fn unsupported(_: &mut Chip, _: &CommandApdu) -> Outcome {
    Err(StatusWord::FUNCTION_NOT_SUPPORTED.into())
}

/// Success without data.
fn done() -> ResponseApdu {
    ResponseApdu::status(StatusWord::OK)
}
