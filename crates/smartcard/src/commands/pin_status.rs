use crate::Card;
use crate::apdu::{CommandApdu, StatusWord, instruction};
use crate::channel::CardChannel;
use crate::error::CardError;

/// A PIN of the card, by its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PinReference {
    /// The user's, which keys need.
    User = 0x81,
    /// The security officer's (initialisation code), which unblocks the user's and initialises.
    SecurityOfficer = 0x88,
}

/// The state of a PIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinStatus {
    /// Verified since the application was selected.
    LoggedIn,
    /// Not verified; so many wrong tries in a row block it.
    TriesLeft(u8),
    /// No tries are left.
    Blocked,
    /// The transport PIN, which is good for nothing but its change.
    Transport,
    /// The card was never initialised, or has no such PIN.
    NotSet,
}

const NAME: &str = "VERIFY (status)";

impl<C: CardChannel> Card<C> {
    /// The state of a PIN, without a try: VERIFY without data (ISO/IEC 7816-4, section 11.5.6).
    pub fn pin_status(&mut self, pin: PinReference) -> Result<PinStatus, CardError> {
        let command = CommandApdu::new(0x00, instruction::VERIFY, 0x00, pin as u8);
        match self.transmit(NAME, command)?.status {
            StatusWord::OK => Ok(PinStatus::LoggedIn),
            StatusWord::REFERENCE_UNUSABLE => Ok(PinStatus::Transport),
            StatusWord::REFERENCE_NOT_FOUND => Ok(PinStatus::NotSet),
            status => match status.tries_left() {
                Some(0) => Ok(PinStatus::Blocked),
                Some(tries) => Ok(PinStatus::TriesLeft(tries)),
                None => Err(self.refused(NAME, status)),
            },
        }
    }
}
