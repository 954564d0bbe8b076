use zeroize::Zeroizing;

use super::ApduError;

/// A command APDU: header, data, and how many bytes are expected in return.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandApdu {
    /// Class: 00 for ISO commands, 80 for the SmartCard-HSM's own.
    pub cla: u8,
    /// Instruction.
    pub ins: u8,
    /// First parameter.
    pub p1: u8,
    /// Second parameter.
    pub p2: u8,
    /// Command data, which may be a PIN or a key: wiped when dropped.
    pub data: Zeroizing<Vec<u8>>,
    /// At most how many bytes the response may have (Ne), 1 to 65536; `None` if none are expected.
    pub ne: Option<usize>,
}

/// The limit of short lengths (ISO/IEC 7816-3, section 12.1.3).
const SHORT_DATA: usize = 255;
const SHORT_NE: usize = 256;
const EXTENDED_DATA: usize = 65_535;
const EXTENDED_NE: usize = 65_536;

impl CommandApdu {
    /// A command without data that expects none.
    pub fn new(cla: u8, ins: u8, p1: u8, p2: u8) -> Self {
        Self {
            cla,
            ins,
            p1,
            p2,
            data: Zeroizing::default(),
            ne: None,
        }
    }

    /// The command with these data; the caller's own copy is the caller's to wipe.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Zeroizing::new(data.into());
        self
    }

    /// The command, expecting at most `ne` bytes: 256 is all that a short APDU can ask for, 65536 the
    /// most of an extended one.
    #[must_use]
    pub fn expecting(mut self, ne: usize) -> Self {
        self.ne = Some(ne);
        self
    }

    /// The bytes for the card: short lengths where they suffice, extended ones otherwise.
    pub fn encode(&self) -> Result<Zeroizing<Vec<u8>>, ApduError> {
        if self.data.len() > SHORT_DATA || self.ne.is_some_and(|ne| ne > SHORT_NE) {
            return self.encode_extended();
        }
        let mut apdu = self.header();
        if !self.data.is_empty() {
            apdu.push(self.data.len() as u8);
            apdu.extend_from_slice(&self.data);
        }
        // 256 is written as 00.
        apdu.extend(self.ne.map(|ne| ne as u8));
        Ok(apdu)
    }

    /// The bytes for the card with extended lengths, also where short ones would do.
    pub fn encode_extended(&self) -> Result<Zeroizing<Vec<u8>>, ApduError> {
        if self.data.len() > EXTENDED_DATA {
            return Err(ApduError::TooLong(self.data.len()));
        }
        let mut apdu = self.header();
        if !self.data.is_empty() {
            apdu.push(0);
            apdu.extend_from_slice(&(self.data.len() as u16).to_be_bytes());
            apdu.extend_from_slice(&self.data);
        } else if self.ne.is_some() {
            apdu.push(0);
        }
        if let Some(ne) = self.ne {
            // 65536 is written as 0000.
            apdu.extend_from_slice(&(ne.min(EXTENDED_NE) as u16).to_be_bytes());
        }
        Ok(apdu)
    }

    /// Reads a command as a card does: cases 1 to 4, short and extended.
    pub fn parse(apdu: &[u8]) -> Result<Self, ApduError> {
        let (&[cla, ins, p1, p2], body) = apdu
            .split_first_chunk()
            .ok_or(ApduError::Malformed("shorter than a header of 4 bytes"))?;
        let (data, ne) = match *body {
            [] => (&[][..], None),
            [le] => (&[][..], Some(short_ne(le))),
            [0, high, low] => (&[][..], Some(extended_ne([high, low]))),
            [0, high, low, ref rest @ ..] => {
                let lc = usize::from(u16::from_be_bytes([high, low]));
                let (data, le) = split(rest, lc)?;
                match *le {
                    [] => (data, None),
                    [high, low] => (data, Some(extended_ne([high, low]))),
                    _ => return Err(WRONG_LE),
                }
            }
            [lc, ref rest @ ..] => {
                let (data, le) = split(rest, usize::from(lc))?;
                match *le {
                    [] => (data, None),
                    [le] => (data, Some(short_ne(le))),
                    _ => return Err(WRONG_LE),
                }
            }
        };
        Ok(Self {
            cla,
            ins,
            p1,
            p2,
            data: Zeroizing::new(data.to_vec()),
            ne,
        })
    }

    /// Room for everything at once: a vector that grows leaves copies of a PIN behind.
    fn header(&self) -> Zeroizing<Vec<u8>> {
        let mut apdu = Vec::with_capacity(4 + 3 + self.data.len() + 3);
        apdu.extend_from_slice(&[self.cla, self.ins, self.p1, self.p2]);
        Zeroizing::new(apdu)
    }
}

const WRONG_LE: ApduError = ApduError::Malformed("more bytes than Lc and Le account for");

fn split(body: &[u8], lc: usize) -> Result<(&[u8], &[u8]), ApduError> {
    if lc == 0 {
        return Err(ApduError::Malformed("Lc is 0"));
    }
    body.split_at_checked(lc)
        .ok_or(ApduError::Malformed("fewer data bytes than Lc says"))
}

fn short_ne(le: u8) -> usize {
    if le == 0 { SHORT_NE } else { usize::from(le) }
}

fn extended_ne(le: [u8; 2]) -> usize {
    match u16::from_be_bytes(le) {
        0 => EXTENDED_NE,
        le => usize::from(le),
    }
}

/// Shows lengths only: the data may be a PIN.
impl std::fmt::Debug for CommandApdu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            cla, ins, p1, p2, ..
        } = self;
        write!(f, "Command({cla:02X} {ins:02X} {p1:02X} {p2:02X}, ")?;
        write!(f, "{} bytes, expecting {:?})", self.data.len(), self.ne)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roundtrip(command: &CommandApdu, bytes: &[u8]) {
        assert_eq!(command.encode().unwrap().as_slice(), bytes);
        assert_eq!(&CommandApdu::parse(bytes).unwrap(), command);
        let extended = command.encode_extended().unwrap();
        assert_eq!(&CommandApdu::parse(&extended).unwrap(), command);
    }

    #[test]
    fn the_four_cases_are_short_where_that_suffices() {
        let command = CommandApdu::new(0x80, 0x58, 1, 2);
        roundtrip(&command, &[0x80, 0x58, 1, 2]);
        roundtrip(&command.clone().expecting(256), &[0x80, 0x58, 1, 2, 0]);
        roundtrip(&command.clone().expecting(8), &[0x80, 0x58, 1, 2, 8]);
        let with_data = command.with_data([7, 8]);
        roundtrip(&with_data, &[0x80, 0x58, 1, 2, 2, 7, 8]);
        roundtrip(&with_data.expecting(256), &[0x80, 0x58, 1, 2, 2, 7, 8, 0]);
    }

    #[test]
    fn what_does_not_fit_is_extended() {
        let command = CommandApdu::new(0, 0xB1, 0, 0);
        roundtrip(
            &command.clone().expecting(65_536),
            &[0, 0xB1, 0, 0, 0, 0, 0],
        );
        roundtrip(&command.clone().expecting(257), &[0, 0xB1, 0, 0, 0, 1, 1]);
        let long = command.clone().with_data(vec![5; 256]);
        let expected = [&[0, 0xB1, 0, 0, 0, 1, 0], &[5; 256][..]].concat();
        roundtrip(&long, &expected);
        roundtrip(&long.expecting(300), &[&expected[..], &[1, 44]].concat());
        let too_long = command.with_data(vec![0; 65_536]);
        assert_eq!(too_long.encode(), Err(ApduError::TooLong(65_536)));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        for bytes in [
            &[][..],
            &[0, 0x20, 0],
            &[0, 0x20, 0, 0x81, 2, 1],
            &[0, 0x20, 0, 0x81, 1, 1, 0, 0],
            &[0, 0x20, 0, 0x81, 0, 0],
            &[0, 0x20, 0, 0x81, 0, 0, 0, 1],
            &[0, 0x20, 0, 0x81, 0, 0, 2, 1],
            &[0, 0x20, 0, 0x81, 0, 0, 1, 1, 0],
        ] {
            assert!(CommandApdu::parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
