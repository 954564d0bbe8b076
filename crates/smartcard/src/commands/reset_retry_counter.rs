use hsmux_token::Secret;

use super::verify::check_user_pin;
use super::{PinReference, SoPin};
use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::secret::joined;

const NAME: &str = "RESET RETRY COUNTER";

impl<C: CardChannel> Card<C> {
    /// Unblocks the user's PIN with the SO-PIN, and sets a new one if given (ISO/IEC 7816-4, section 11.5.10).
    ///
    /// A card that was initialised without this option refuses it (`6985`). A wrong SO-PIN costs one of the SO-PIN's
    /// tries, and an SO-PIN cannot be unblocked.
    pub fn reset_retry_counter(
        &mut self,
        so_pin: &SoPin,
        new_pin: Option<&Secret>,
    ) -> Result<(), CardError> {
        let (p1, new) = match new_pin {
            Some(new) => {
                check_user_pin(NAME, new)?;
                (0x00, new.expose())
            }
            None => (0x01, &[][..]),
        };
        let mut command = CommandApdu::new(
            0x00,
            instruction::RESET_RETRY_COUNTER,
            p1,
            PinReference::User as u8,
        );
        command.data = joined(&[so_pin.expose(), new]);
        self.run(NAME, command).map(drop)
    }
}
