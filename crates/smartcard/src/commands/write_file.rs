use crate::Card;
use crate::apdu::{CommandApdu, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::FileId;
use crate::tlv::tlv;

const NAME: &str = "UPDATE BINARY";
/// Tags and lengths of offset and data.
const HEADERS: usize = 4 + 4;
/// The offset has two bytes.
const MAX_FILE: usize = 0x1_0000;

impl<C: CardChannel> Card<C> {
    /// Writes a file from its beginning, and creates it if need be; what it held beyond `content` stays.
    ///
    /// UPDATE BINARY with an odd instruction (ISO/IEC 7816-4, section 11.3.5): the file in P1 and P2, the
    /// offset in tag 54, the data in tag 53.
    pub fn write_file(&mut self, file: FileId, content: &[u8]) -> Result<(), CardError> {
        if content.len() > MAX_FILE {
            let what = format!(
                "{} bytes do not fit into a file, which holds 65536",
                content.len()
            );
            return Err(CardError::invalid(NAME, what));
        }
        if content.is_empty() {
            return self.write_part(file, 0, &[]);
        }
        let mut offset = 0;
        while offset < content.len() {
            // Asked for each time: a card that takes short commands only is found out by the first.
            let len = (self.max_data() - HEADERS).min(content.len() - offset);
            self.write_part(file, offset, &content[offset..offset + len])?;
            offset += len;
        }
        Ok(())
    }

    /// Deletes the file if there is one, then writes it: nothing of the old content stays.
    pub fn replace_file(&mut self, file: FileId, content: &[u8]) -> Result<(), CardError> {
        self.delete_file(file)?;
        self.write_file(file, content)
    }

    fn write_part(&mut self, file: FileId, offset: usize, part: &[u8]) -> Result<(), CardError> {
        let [p1, p2] = file.0.to_be_bytes();
        let offset = tlv(0x54, &[&(offset as u16).to_be_bytes()]);
        let command = CommandApdu::new(0x00, instruction::UPDATE_BINARY, p1, p2)
            .with_data([offset, tlv(0x53, &[part])].concat());
        self.run(NAME, command).map(drop)
    }
}
