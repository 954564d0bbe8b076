//! A virtual SmartCard-HSM: the card's side of what `hsmux-smartcard` and OpenSC say to one.
//!
//! **It protects nothing.** Keys and PINs lie in memory or in a file, in the clear; its certificate is
//! issued by a key that everybody can compute. It is for tests, for measuring, and for learning what
//! to do with cards before having any. Labels, certificates and the log say so.
//!
//! ```
//! use hsmux_vcard::{Card, Profile, Slot};
//! use hsmux_smartcard::CardChannel;
//!
//! let slot = Slot::new(Card::new(Profile::new("VC000001"))?);
//! let mut channel = slot.channel();
//! let select = b"\x00\xA4\x04\x00\x0B\xE8\x2B\x06\x01\x04\x01\x81\xC3\x1F\x02\x01\x00";
//! let answer = channel.transmit(select).unwrap();
//! assert_eq!(answer[answer.len() - 2..], [0x90, 0x00]);
//!
//! slot.control().unplug();
//! assert!(channel.transmit(select).is_err());
//! # Ok::<(), hsmux_vcard::CardError>(())
//! ```
//!
//! | | |
//! |---|---|
//! | [`Card`] | one card: power, reset, command APDUs in, responses out; made from a [`Profile`] |
//! | [`Slot`], [`MemoryChannel`] | a card behind `CardChannel`, with transactions, for several users at once |
//! | [`Control`] | pulls and plugs the card and orders [`Fault`]s while it works |
//! | [`Timing`] | how long operations take |
//!
//! What it does is taken from the clients' sources (OpenSC, sc-hsm-embedded); it was never compared
//! with a real card. Not there, as on a card that was initialised without: authentication with public
//! keys, fingerprints, session PINs, key domains other than the first, secure messaging.

mod card;
mod channel;
mod chip;
mod command;
mod control;
mod crypto;
mod cvc;
mod dkek;
mod fault;
mod key;
mod memory;
mod pace;
pub mod reader;
mod state;
mod timing;

pub use card::{Card, CardError, NoAnswer, Profile};
pub use channel::{MemoryChannel, Slot};
pub use control::{Control, Work};
pub use fault::{Fault, Order, OrderError, Trigger};
pub use key::KeyKind;
pub use timing::{Operation, Service, Table, Timing, TimingError};
