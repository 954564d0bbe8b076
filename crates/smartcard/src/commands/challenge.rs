use zeroize::Zeroizing;

use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;

const NAME: &str = "GET CHALLENGE";
/// The most that a card gives at once.
const CHUNK: usize = 1024;

impl<C: CardChannel> Card<C> {
    /// Random bytes of the card (ISO/IEC 7816-4, section 11.5.3).
    pub fn challenge(&mut self, len: usize) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let mut random = Zeroizing::new(Vec::with_capacity(len));
        while random.len() < len {
            let wanted = (len - random.len()).min(CHUNK).min(self.max_answer());
            let command =
                CommandApdu::new(0x00, instruction::GET_CHALLENGE, 0, 0).expecting(wanted);
            let part = self.run(NAME, command)?;
            if part.is_empty() || part.len() > wanted {
                let what = format!("{} random bytes in place of {wanted}", part.len());
                return Err(self.bad_answer(NAME, what));
            }
            random.extend_from_slice(&part);
        }
        Ok(random)
    }
}
