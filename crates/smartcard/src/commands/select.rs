use crate::Card;
use crate::apdu::{CommandApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;
use crate::file::FileId;
use crate::tlv::{Tlv, TlvError};

/// The application's answer to its selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Application {
    /// Options of the card and of its initialisation; bit 2 of the second byte: session PINs.
    pub options: u16,
    /// 0: on JCOP, 1: demonstration version; nothing where the card does not say.
    pub platform: Option<u8>,
    /// Major and minor version.
    pub version: (u8, u8),
}

/// E8 2B 06 01 04 01 81 C3 1F 02 01: the arc 1.3.6.1.4.1.24991.2.1 of CardContact.
pub const AID: [u8; 11] = [
    0xE8, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x81, 0xC3, 0x1F, 0x02, 0x01,
];

const NAME: &str = "SELECT";

impl<C: CardChannel> Card<C> {
    /// Selects the SmartCard-HSM's application, which logs everybody out (ISO/IEC 7816-4, section 11.2.2).
    pub fn select(&mut self) -> Result<Application, CardError> {
        // The card wants a short Le, also where it takes extended ones.
        let command = CommandApdu::new(0x00, instruction::SELECT, 0x04, 0x00)
            .with_data(AID)
            .expecting(256);
        let answer = self.run(NAME, command)?;
        self.note_login(false);
        application(&answer).map_err(|error| self.bad_answer(NAME, error))
    }

    /// Selects a file; whether it exists is the answer.
    pub fn select_file(&mut self, file: FileId) -> Result<bool, CardError> {
        let command = CommandApdu::new(0x00, instruction::SELECT, 0x00, 0x00)
            .with_data(file.0.to_be_bytes())
            .expecting(256);
        let response = self.transmit(NAME, command)?;
        match response.status {
            StatusWord::OK => Ok(true),
            StatusWord::FILE_NOT_FOUND => Ok(false),
            status => Err(self.refused(NAME, status)),
        }
    }
}

/// Tag 85 (proprietary) in the file control parameters, tag 62 (ISO/IEC 7816-4, section 7.4.3): options,
/// platform, major, minor, of which old cards have the last two alone.
fn application(answer: &[u8]) -> Result<Application, TlvError> {
    let (control, _) = Tlv::first(answer)?;
    let about = control.child(0x85)?.value;
    let (rest, &[major, minor]) = about.split_last_chunk().ok_or(TlvError::Truncated)?;
    let (platform, options) = match rest.split_last() {
        Some((platform, options)) => (Some(*platform), options),
        None => (None, &[][..]),
    };
    let options = match *options {
        [] => 0,
        [only] => u16::from(only),
        [first, second, ..] => u16::from_be_bytes([first, second]),
    };
    Ok(Application {
        options,
        platform,
        version: (major, minor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlv::tlv;

    #[test]
    fn old_and_new_cards_say_their_version() {
        let answer = |about: &[u8]| tlv(0x62, &[&tlv(0x85, &[about])]);
        let new = application(&answer(&[0x00, 0x05, 0xFF, 3, 6])).unwrap();
        let expected = Application {
            options: 5,
            platform: Some(0xFF),
            version: (3, 6),
        };
        assert_eq!(new, expected);
        let old = application(&answer(&[1, 2])).unwrap();
        assert_eq!((old.platform, old.version), (None, (1, 2)));
        assert!(application(&answer(&[1])).is_err());
        assert!(application(&tlv(0x62, &[])).is_err());
    }
}
