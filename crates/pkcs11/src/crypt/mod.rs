//! Cryptographic operations: one state machine for all functions, single and multi-part.
//!
//! An [`ActiveOperation`] is an [`input::OperationInput`], which gathers, hashes or enciphers parts as they
//! come, and a [`keyed_step::KeyedStep`], which does the keyed step. Between parts nothing is held on any
//! member.

mod begin;
mod blocks;
mod function;
mod init_check;
mod input;
mod keyed_step;
mod length;
mod operation;
mod params;
mod session;

pub use function::Function;
pub use init_check::{InitChecks, init_refusal};
pub use keyed_step::of_key;
pub use operation::ActiveOperation;
