//! The audit trail: who used which key, who administered what.
//!
//! A [`Trail`] takes [`Event`]s from any thread and writes each as one JSON line. Lines form a
//! chain by HMAC ([chain]); [checkpoints](line::Checkpoint) sign it with Ed25519 and disclose the
//! key of the lines before them, so that whoever has the public key can [verify] every line, with
//! the files alone. The form of the lines is described in `docs/audit.md` and
//! `docs/audit-schema.json`.
//!
//! What it stands against: a line changed, added, moved or missing, by whoever could write to the
//! files but not read the state folder, is found with the public key. Whoever got the state folder,
//! too, can sign what he likes; the secret there goes only forward, so that the past stands against
//! him where somebody keeps an earlier [`SealKey`] elsewhere.

mod audit_folder;
mod chain;
mod event;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod line;
mod queue;
mod recover;
mod repeats;
mod trail;
pub mod verify;
mod writer;

pub use audit_folder::{AuditFolder, Head};
pub use event::{Actor, Event};
pub use keys::{PublicKey, SealKey};
pub use repeats::{RepeatCount, Repeats};
pub use trail::{OnFailure, Settings, Trail, TrailStatus};
