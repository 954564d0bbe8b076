use hsmux_smartcard::{CommandApdu, ResponseApdu, StatusWord};

use crate::chip::{Chip, Outcome};
use crate::crypto::aes;
use crate::key::CardKey;
use crate::timing::Operation;

const CBC_ENCRYPT: u8 = 0x10;
const CBC_DECRYPT: u8 = 0x11;
const CMAC: u8 = 0x18;
const DERIVE: u8 = 0x99;

/// CIPHER with an AES key: CBC with an IV of zeros, CMAC, derivation of 32 bytes.
pub fn cipher(chip: &mut Chip, command: &CommandApdu) -> Outcome {
    let operation = match command.p2 {
        CBC_ENCRYPT | CBC_DECRYPT => Operation::Cipher,
        CMAC => Operation::Mac,
        DERIVE => Operation::Derive,
        _ => return Err(StatusWord::WRONG_PARAMETERS.into()),
    };
    let key = chip.use_key(command.p1, command.p2, operation)?;
    let CardKey::Aes(key) = &*key else {
        return Err(StatusWord::CONDITIONS_NOT_SATISFIED.into());
    };
    let data = &command.data;
    let answer = match command.p2 {
        CBC_ENCRYPT => aes::encrypt(key, data),
        CBC_DECRYPT => aes::decrypt(key, data),
        CMAC => aes::mac(key, data),
        _ => Some(aes::derive(key, data)),
    };
    Ok(ResponseApdu::ok(answer.ok_or(StatusWord::WRONG_LENGTH)?))
}
