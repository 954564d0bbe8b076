use zeroize::Zeroizing;

use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;

const NAME: &str = "DECIPHER";
const RSA: u8 = 0x21;

impl<C: CardChannel> Card<C> {
    /// Raw RSA with the private key: the padding is left in place (OpenSC `sc_hsm_decipher`).
    pub fn decrypt(
        &mut self,
        key: KeyReference,
        cryptogram: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let command = CommandApdu::new(0x80, instruction::DECIPHER, key.0, RSA)
            .with_data(cryptogram)
            .expecting(512);
        self.run(NAME, command)
    }
}
