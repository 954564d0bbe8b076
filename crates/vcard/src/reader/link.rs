//! The messages of a card's connection to vpcd: a 16-bit big-endian length, then the bytes. From vpcd one byte is a
//! signal of the contacts; more are a command APDU. Cards answer APDUs and the ATR request (vsmartcard, `vpcd.c`).

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustix::net::sockopt::set_tcp_quickack;

/// A message from the reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signal {
    PowerOff,
    PowerOn,
    Reset,
    AskAtr,
    Command(Vec<u8>),
}

impl From<Vec<u8>> for Signal {
    fn from(message: Vec<u8>) -> Self {
        match *message {
            [0] => Self::PowerOff,
            [1] => Self::PowerOn,
            [2] => Self::Reset,
            [4] => Self::AskAtr,
            _ => Self::Command(message),
        }
    }
}

/// A card's end of the connection.
pub(super) struct Link(TcpStream);

impl Link {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Waits for the next signal; an error means that the reader is gone.
    pub fn hear(&mut self) -> io::Result<Signal> {
        let mut length = [0; 2];
        self.read(&mut length)?;
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        self.read(&mut message)?;
        Ok(message.into())
    }

    /// Sends an ATR or a response APDU.
    pub fn say(&mut self, answer: &[u8]) -> io::Result<()> {
        let length = u16::try_from(answer.len())
            .map_err(|_| io::Error::other("an answer of more than 65535 bytes"))?;
        let message = [&length.to_be_bytes(), answer].concat();
        self.0.write_all(&message)
    }

    /// Acknowledges at once (TCP_QUICKACK): vpcd sends length and message separately, and Nagle's algorithm
    /// would delay the second by up to 40 ms. The kernel resets the option, so it is set before each read.
    fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        set_tcp_quickack(&self.0, true)?;
        self.0.read_exact(into)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn signals_and_commands_arrive_as_vpcd_sends_them() {
        let vpcd = TcpListener::bind("127.0.0.1:0").unwrap();
        let card = TcpStream::connect(vpcd.local_addr().unwrap()).unwrap();
        let (mut reader, _) = vpcd.accept().unwrap();
        let mut link = Link::new(card).unwrap();
        for part in [&[0, 1][..], &[1], &[0, 1, 4, 0, 4, 0, 0x84], &[0, 0, 8]] {
            reader.write_all(part).unwrap();
        }
        assert_eq!(link.hear().unwrap(), Signal::PowerOn);
        assert_eq!(link.hear().unwrap(), Signal::AskAtr);
        let challenge = vec![0, 0x84, 0, 0];
        assert_eq!(link.hear().unwrap(), Signal::Command(challenge));

        link.say(&[0x90, 0]).unwrap();
        let mut answer = [0; 4];
        reader.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0, 2, 0x90, 0]);

        reader.write_all(&[0, 5, 1]).unwrap();
        drop(reader);
        let cut = link.hear().unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
