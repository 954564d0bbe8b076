use zeroize::Zeroizing;

use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::KeyReference;

const NAME: &str = "DECIPHER (ECDH)";
const ECDH: u8 = 0x80;

impl<C: CardChannel> Card<C> {
    /// The x-coordinate of the point that a key agrees on with another's public point (04, x, y)
    /// (SP 800-56A, section 5.7.1.2).
    pub fn agree(
        &mut self,
        key: KeyReference,
        public: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let point = self.agree_on_point(key, public)?;
        let coordinates = &point[1..];
        Ok(Zeroizing::new(
            coordinates[..coordinates.len() / 2].to_vec(),
        ))
    }

    /// The same point whole: 04, x, y.
    pub fn agree_on_point(
        &mut self,
        key: KeyReference,
        public: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let command = CommandApdu::new(0x80, instruction::DECIPHER, key.0, ECDH)
            .with_data(public)
            .expecting(256);
        let point = self.run(NAME, command)?;
        match point.split_first() {
            Some((0x04, coordinates)) if coordinates.len().is_multiple_of(2) => Ok(point),
            _ => Err(self.bad_answer(NAME, "what is not a point")),
        }
    }
}
