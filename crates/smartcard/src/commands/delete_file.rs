use crate::Card;
use crate::apdu::{CommandApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::FileId;

const NAME: &str = "DELETE FILE";

impl<C: CardChannel> Card<C> {
    /// Deletes a key or a file; whether there was one is the answer (ISO/IEC 7816-9, section 6.4).
    pub fn delete_file(&mut self, file: FileId) -> Result<bool, CardError> {
        let command = CommandApdu::new(0x00, instruction::DELETE_FILE, 0x02, 0x00)
            .with_data(file.0.to_be_bytes());
        match self.transmit(NAME, command)?.status {
            StatusWord::OK => Ok(true),
            StatusWord::FILE_NOT_FOUND => Ok(false),
            status => Err(self.refused(NAME, status)),
        }
    }
}
