//! Cryptographic operations: one state machine for all functions, single and multi-part.
//!
//! An [`Active`] operation is an [`input::Input`], which gathers, hashes or enciphers parts as they
//! come, and a [`target::Target`], which does the keyed step. Between parts nothing is held on any
//! member.

mod active;
mod begin;
mod blocks;
mod function;
mod init_check;
mod input;
mod length;
mod params;
mod session;
mod target;

pub use active::Active;
pub use function::Function;
pub use init_check::{InitChecks, init_refusal};
pub use target::of_key;
