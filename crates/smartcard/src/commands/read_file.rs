use zeroize::Zeroizing;

use crate::Card;
use crate::apdu::{CommandApdu, ResponseApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::FileId;
use crate::tlv::tlv;

const NAME: &str = "READ BINARY";
/// The length that every card and reader with extended lengths can answer at once.
const CHUNK: usize = 1024;
/// The offset has two bytes.
const MAX_FILE: usize = 0x1_0000;

impl<C: CardChannel> Card<C> {
    /// Reads a file whole; `6A82` if it does not exist, `6982` if it needs the PIN.
    ///
    /// READ BINARY with an odd instruction (ISO/IEC 7816-4, section 11.3.3): the file in P1 and P2, the offset
    /// in tag 54. The file ends where the card answers less than it was asked for.
    pub fn read_file(&mut self, file: FileId) -> Result<Zeroizing<Vec<u8>>, CardError> {
        let chunk = CHUNK.min(self.max_answer());
        let mut content = Zeroizing::new(Vec::with_capacity(2 * CHUNK));
        while content.len() < MAX_FILE {
            let response = self.read_part(file, content.len(), chunk)?;
            if content.capacity() - content.len() < response.data.len() {
                // A vector that grows by itself leaves what it had behind, unwiped.
                let mut larger =
                    Zeroizing::new(Vec::with_capacity(4 * content.capacity().max(chunk)));
                larger.extend_from_slice(&content);
                content = larger;
            }
            content.extend_from_slice(&response.data);
            match response.status {
                StatusWord::OK if response.data.len() >= chunk => {}
                StatusWord::OK | StatusWord::END_OF_FILE => return Ok(content),
                // The length of the file is a multiple of what is read at once.
                StatusWord::WRONG_OFFSET if !content.is_empty() => return Ok(content),
                status => return Err(self.refused(NAME, status)),
            }
        }
        Err(self.bad_answer(NAME, "more than a file can hold"))
    }

    /// [`read_file`](Self::read_file), where a file that does not exist is an answer.
    pub fn read_file_if_any(
        &mut self,
        file: FileId,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CardError> {
        match self.read_file(file) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.status() == Some(StatusWord::FILE_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_part(
        &mut self,
        file: FileId,
        offset: usize,
        len: usize,
    ) -> Result<ResponseApdu, CardError> {
        let [p1, p2] = file.0.to_be_bytes();
        let command = CommandApdu::new(0x00, instruction::READ_BINARY, p1, p2)
            .with_data(tlv(0x54, &[&(offset as u16).to_be_bytes()]))
            .expecting(len);
        self.transmit(NAME, command)
    }
}
