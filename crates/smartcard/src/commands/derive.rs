use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;
use crate::secret::joined;

const NAME: &str = "DERIVE EC KEY";
const EC_DERIVE: u8 = 0x98;

impl<C: CardChannel> Card<C> {
    /// Makes the new key `derived` from an EC key and a parameter (sc-hsm-embedded `sc_hsm_C_DeriveKey`).
    pub fn derive_ec(
        &mut self,
        key: KeyReference,
        derived: KeyReference,
        parameter: &[u8],
    ) -> Result<(), CardError> {
        let mut command = CommandApdu::new(0x80, instruction::DERIVE_EC_KEY, key.0, derived.0);
        command.data = joined(&[&[EC_DERIVE], parameter]);
        self.run(NAME, command).map(drop)
    }
}
