//! The host side of a SmartCard-HSM (SmartCard-HSM, Nitrokey HSM 2).
//!
//! | module | what |
//! |---|---|
//! | [`apdu`] | [`Command`], [`Response`] and [`Status`]: the same types on both sides of the reader |
//! | [`tlv`] | BER-TLV, read and written |
//! | [`dkek`] | how keys travel between cards: shares, wrapped keys and their files |
//! | [`CardChannel`] | how bytes reach a card: PC/SC, or a card in memory |

pub mod apdu;
mod channel;
pub mod dkek;
pub mod tlv;

pub use apdu::{Command, Response, Status};
pub use channel::{CardChannel, ChannelError};
