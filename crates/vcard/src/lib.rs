//! A virtual SmartCard-HSM: the card's side of the protocol of `hsmux-smartcard` and OpenSC.
//!
//! **It protects nothing.** Keys and PINs are in clear text, in memory or in a file, and the issuer's key is public
//! knowledge. It is for tests, measurements and training. Labels, certificates and the log say so.
//!
//! ```
//! use hsmux_vcard::{Card, Profile, Slot};
//! use hsmux_smartcard::CardChannel;
//!
//! let slot = Slot::new(Card::new(Profile::new("VC000001"))?); let mut channel = slot.channel(); let select =
//! b"\x00\xA4\x04\x00\x0B\xE8\x2B\x06\x01\x04\x01\x81\xC3\x1F\x02\x01\x00"; let answer =
//! channel.transmit(select).unwrap(); assert_eq!(answer[answer.len() - 2..], [0x90, 0x00]);
//!
//! slot.control().unplug();
//! assert!(channel.transmit(select).is_err());
//! # Ok::<(), hsmux_vcard::CardError>(())
//! ```
//!
//! | | |
//! |---|---|
//! | [`Card`] | one card: power, reset, commands and responses (APDUs); created from a [`Profile`] |
//! | [`Slot`], [`MemoryChannel`] | a card behind `CardChannel`, with transactions, for several users at once |
//! | [`Control`] | pulls and plugs the card and orders [`Fault`]s while it works |
//! | [`Timing`] | service times of operations |
//!
//! Its behaviour comes from the clients' sources (OpenSC, sc-hsm-embedded), without comparison to a real card. Not
//! supported: authentication with public keys, fingerprints, session PINs, key domains other than 0, secure messaging.

mod card;
mod channel;
mod chip;
mod command;
mod control;
mod crypto;
mod cvc;
mod delay;
mod dkek;
mod fault;
mod key;
mod memory;
pub mod reader;
mod state;
mod timing;

pub use card::{Card, CardError, NoAnswer, Profile};
pub use channel::{MemoryChannel, Slot};
pub use control::{CardWork, Control};
pub use fault::{Fault, Order, OrderError, Trigger};
pub use key::KeyKind;
pub use timing::{Operation, ServiceTime, Table, Timing, TimingError};
