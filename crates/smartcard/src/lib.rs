//! The host side of a SmartCard-HSM (SmartCard-HSM, Nitrokey HSM 2).
//!
//! | module | what |
//! |---|---|
//! | [`Card`] | a card at the end of a channel, with a method for each of its [`commands`] |
//! | [`CardChannel`] | the connection to a card: [`pcsc`], or a card in memory |
//! | [`apdu`] | [`CommandApdu`], [`ResponseApdu`] and [`StatusWord`]: the same types on both sides of the reader |
//! | [`FileId`], [`FileKind`], [`KeyReference`] | names of keys and files |
//! | [`cvc`] | certificates of the card, and requests of new keys |
//! | [`pkcs15`] | descriptions of keys, certificates, data, and of the card |
//! | [`Curve`] | the curves, with the numbers that a card needs |
//! | [`dkek`] | transfer of keys between cards: shares, wrapped keys and their files |
//! | [`provision`] | setup of cards; transfer of their keys to other cards and into files |
//! | [`tlv`] | BER-TLV, read and written |
//! | [`CardToken`] | a card that signs as a `Token`, for measurements |
//!
//! ```no_run
//! use hsmux_smartcard::{Card, CardError, FileKind, SignAlgorithm, commands::PinReference, pcsc};
//!
//! # fn main() -> Result<(), CardError> {
//! # let pin = hsmux_token::Secret::new(Vec::new());
//! # let digest = [0; 32];
//! let mut card = Card::new(pcsc::Channel::open("Nitrokey HSM", pcsc::CardTimeouts::default())?);
//! card.exclusively(|card| {
//!     let version = card.select()?.version;
//!     println!("version {version:?}, PIN {:?}", card.pin_status(PinReference::User)?);
//!     card.verify(&pin)?;
//!     for file in card.enumerate()? {
//!         if file.kind() == Some(FileKind::Key) && file.number() != 0 {
//!             let key = hsmux_smartcard::KeyReference(file.number());
//!             card.sign(key, SignAlgorithm::Ecdsa, &digest)?;
//!         }
//!     }
//!     Ok(())
//! })
//! # }
//! ```
//!
//! No physical card was at hand: commands and formats are those of the published clients.

pub mod apdu;
mod card;
mod channel;
pub mod commands;
mod curve;
pub mod cvc;
pub mod dkek;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzzing;
pub mod pcsc;
pub mod pkcs15;
pub mod provision;
mod secret;
mod signature;
pub mod tlv;
mod token;

pub use apdu::{CommandApdu, ResponseApdu, StatusWord};
pub use card::Card;
pub use channel::{CardChannel, ChannelError};
pub use commands::{
    AesAlgorithm, AesSize, Application, DkekStatus, Initialize, KeyPair, KeyPairKind, PinReference,
    PinStatus, SignAlgorithm, SoPin,
};
pub use curve::Curve;
pub use error::CardError;
pub use file::{FileId, FileKind, KeyReference};
pub use signature::{SignatureError, ecdsa_fixed};
pub use token::CardToken;
