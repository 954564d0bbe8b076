use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::FileId;

const NAME: &str = "ENUMERATE OBJECTS";

impl<C: CardChannel> Card<C> {
    /// The identifiers of all keys and files, in the card's order (OpenSC `sc_hsm_list_files`).
    pub fn enumerate(&mut self) -> Result<Vec<FileId>, CardError> {
        let command = CommandApdu::new(0x80, instruction::ENUMERATE_OBJECTS, 0, 0)
            .expecting(self.max_answer());
        let answer = self.run(NAME, command)?;
        let (files, rest) = answer.as_chunks();
        if !rest.is_empty() {
            return Err(self.bad_answer(NAME, "an odd number of bytes"));
        }
        Ok(files
            .iter()
            .map(|file| FileId(u16::from_be_bytes(*file)))
            .collect())
    }
}
