//! Commands to a card and its responses (ISO/IEC 7816-3, section 12.1; ISO/IEC 7816-4, section 5).

mod command;
pub mod instruction;
mod response;
mod status;

pub use command::CommandApdu;
pub use response::ResponseApdu;
pub use status::StatusWord;

/// An APDU that cannot be read, or not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApduError {
    /// The lengths inside do not fit the length of the whole.
    #[error("not an APDU: {0}")]
    Malformed(&'static str),
    /// Longer than an extended APDU can say.
    #[error("{0} bytes do not fit into one APDU, which holds at most 65535")]
    TooLong(usize),
}
