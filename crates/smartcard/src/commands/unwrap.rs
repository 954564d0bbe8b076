use crate::Card;
use crate::apdu::{CommandApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::{FileId, KeyReference};

const NAME: &str = "UNWRAP KEY";
const UNWRAP: u8 = 0x93;

/// Refusals of an unknown form of the command: the card has done nothing.
const OTHER_FORM: [StatusWord; 5] = [
    StatusWord::WRONG_LENGTH,
    StatusWord::FUNCTION_NOT_SUPPORTED,
    StatusWord::WRONG_PARAMETERS,
    StatusWord::FILE_NOT_FOUND,
    StatusWord::CONDITIONS_NOT_SATISFIED,
];

impl<C: CardChannel> Card<C> {
    /// Imports a key that another card has wrapped. `6A80`: another DKEK, or a damaged blob; `6A89`: the number is
    /// taken.
    ///
    /// There are two ways. OpenSC up to 0.23 sends the blob in the command. Newer versions write it to EF 2F10 first,
    /// for readers whose commands are shorter than a blob. A blob that fits is sent in the command, and through the
    /// file if the card does not know that form.
    pub fn unwrap_key(&mut self, key: KeyReference, blob: &[u8]) -> Result<(), CardError> {
        let unwrap = || CommandApdu::new(0x80, instruction::UNWRAP_KEY, key.0, UNWRAP);
        if blob.len() <= self.max_data() {
            match self.transmit(NAME, unwrap().with_data(blob))?.status {
                StatusWord::OK => return Ok(()),
                status if OTHER_FORM.contains(&status) => {}
                status => return Err(self.refused(NAME, status)),
            }
        }
        self.write_file(FileId::WRAPPED_KEY, blob)?;
        self.run(NAME, unwrap()).map(drop)
    }
}
