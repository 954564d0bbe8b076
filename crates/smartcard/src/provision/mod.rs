//! Setup of cards, and the transfer of keys between them.
//!
//! All functions work on a [`Card`](crate::Card) over any channel, in a PC/SC transaction of their own, and leave the
//! card logged out. The exception is [`new_key`], which keeps the login.
//!
//! | file | what |
//! |---|---|
//! | [`access`] | login that wastes no try |
//! | [`report`] | content of a card, without a PIN |
//! | [`initialise`], [`pins`], [`domain`] | set-up, PINs, the DKEK |
//! | [`package`] | one key in transfer: taken from a card, installed on another, all or nothing |
//! | [`key_proof`] | the proof of a copied key |
//! | [`clone`], [`backup`] | all keys of a card, to other cards or into a file |
//! | [`new_key`] | one new key to other cards, beside the programs that use them |

pub mod access;
pub mod backup;
pub mod clone;
pub mod domain;
mod error;
pub mod initialise;
pub mod key_proof;
pub mod new_key;
pub mod package;
pub mod pins;
mod receive;
pub mod report;

pub use access::Access;
pub use backup::Backup;
pub use error::ProvisionError;
pub use package::KeyPackage;
pub use receive::{CardProgress, ReceiveResult};

type Result<T, E = ProvisionError> = std::result::Result<T, E>;
