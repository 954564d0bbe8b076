use hsmux_token::Secret;

use super::verify::check_user_pin;
use super::{PinReference, SoPin};
use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::secret::joined;

const NAME: &str = "CHANGE REFERENCE DATA";

impl<C: CardChannel> Card<C> {
    /// A new PIN for the user, who proves the old one (ISO/IEC 7816-4, section 11.5.7); also turns a
    /// transport PIN into one that works. A wrong old one is `63Cx`, and one try less.
    pub fn change_pin(&mut self, old: &Secret, new: &Secret) -> Result<(), CardError> {
        check_user_pin(NAME, old)?;
        check_user_pin(NAME, new)?;
        self.change(PinReference::User, old.expose(), new.expose())
    }

    /// A new SO-PIN for the old one.
    pub fn change_so_pin(&mut self, old: &SoPin, new: &SoPin) -> Result<(), CardError> {
        self.change(PinReference::SecurityOfficer, old.expose(), new.expose())
    }

    fn change(&mut self, pin: PinReference, old: &[u8], new: &[u8]) -> Result<(), CardError> {
        let mut command =
            CommandApdu::new(0x00, instruction::CHANGE_REFERENCE_DATA, 0x00, pin as u8);
        command.data = joined(&[old, new]);
        self.run(NAME, command)?;
        self.note_login(true);
        Ok(())
    }
}
