use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;

const NAME: &str = "WRAP KEY";
const WRAP: u8 = 0x92;

impl<C: CardChannel> Card<C> {
    /// A key, enciphered under the DKEK (OpenSC `sc_hsm_wrap_key`): only a card with the same DKEK can
    /// [`unwrap`](Self::unwrap_key) it. `6985` while shares are missing.
    pub fn wrap_key(&mut self, key: KeyReference) -> Result<Vec<u8>, CardError> {
        let command =
            CommandApdu::new(0x80, instruction::WRAP_KEY, key.0, WRAP).expecting(self.max_answer());
        Ok(self.run(NAME, command)?.to_vec())
    }
}
