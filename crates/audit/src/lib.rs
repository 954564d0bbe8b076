//! The audit trail: who used which key, who administered what.
//!
//! A [`Trail`] takes [`Event`]s from any thread and writes each as one JSON line. Lines form a chain by HMAC
//! ([chain]). [Checkpoints](line::Checkpoint) sign the chain with Ed25519 and disclose the key of the lines before
//! them: with the files and the public key alone, anybody can [verify] every line. `docs/audit.md` and
//! `docs/audit-schema.json` describe the form of the lines.
//!
//! Verification finds a line that was changed, added, moved or removed by somebody who could write to the files but
//! not read the state folder. A thief of the state folder can sign new lines. He cannot change the past if an earlier
//! [`SealKey`] is kept elsewhere, since the secret goes only forward.

mod audit_folder;
mod chain;
mod clock;
mod disk;
mod event;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod line;
mod queue;
mod recorder;
mod recover;
mod repeats;
mod service_event;
#[cfg(test)]
mod simulation;
mod trail;
pub mod verify;
mod writer;

pub use audit_folder::{AuditFolder, Head};
pub use event::{Actor, Event};
pub use keys::{PublicKey, SealKey};
pub use recorder::Recorder;
pub use repeats::{RepeatCount, Repeats};
pub use trail::{OnFailure, Settings, Trail, TrailStatus, not_admitted};
