use hsmux_token::Secret;
use zeroize::Zeroizing;

use super::PinReference;
use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;

/// The SO-PIN: 8 bytes, which people write as 16 hexadecimal digits.
#[derive(Clone)]
pub struct SoPin(Zeroizing<[u8; 8]>);

/// The problem with an SO-PIN, without the SO-PIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an SO-PIN has 16 hexadecimal digits")]
pub struct NotAnSoPin;

impl SoPin {
    /// From 16 hexadecimal digits.
    pub fn from_hex(digits: &[u8]) -> Result<Self, NotAnSoPin> {
        let mut bytes = Zeroizing::new([0; 8]);
        hex::decode_to_slice(digits, bytes.as_mut_slice()).map_err(|_| NotAnSoPin)?;
        Ok(Self(bytes))
    }

    /// The 8 bytes, for the card.
    pub fn expose(&self) -> &[u8; 8] {
        &self.0
    }
}

impl std::fmt::Debug for SoPin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

const NAME: &str = "VERIFY";

impl<C: CardChannel> Card<C> {
    /// Logs the user in (ISO/IEC 7816-4, section 11.5.6). A wrong PIN is `63Cx`, and one try less.
    ///
    /// A PIN that no card can have is refused here, before it costs a try.
    pub fn verify(&mut self, pin: &Secret) -> Result<(), CardError> {
        check_user_pin(NAME, pin)?;
        self.verify_bytes(PinReference::User, pin.expose())
    }

    /// Checks the SO-PIN; not every version of the card has this. A wrong one is `63Cx`, and one try less.
    pub fn verify_so(&mut self, pin: &SoPin) -> Result<(), CardError> {
        self.verify_bytes(PinReference::SecurityOfficer, pin.expose())
    }

    fn verify_bytes(&mut self, pin: PinReference, bytes: &[u8]) -> Result<(), CardError> {
        let command = CommandApdu::new(0x00, instruction::VERIFY, 0x00, pin as u8).with_data(bytes);
        self.run(NAME, command)?;
        self.note_login(true);
        Ok(())
    }
}

pub(super) fn check_user_pin(command: &'static str, pin: &Secret) -> Result<(), CardError> {
    if (6..=16).contains(&pin.expose().len()) {
        Ok(())
    } else {
        Err(CardError::invalid(command, "a PIN has 6 to 16 characters"))
    }
}
