//! The commands of a SmartCard-HSM, one file each, as methods of [`Card`](crate::Card).
//!
//! Sources: ISO/IEC 7816-4 and 7816-8 for class 00; for class 80 the SmartCard-HSM's own commands as
//! its published clients send them (OpenSC `card-sc-hsm.c`, sc-hsm-embedded `token-sc-hsm.c`).

mod agree;
mod challenge;
mod change_pin;
mod decrypt;
mod delete_file;
mod derive;
mod dkek;
mod enumerate;
mod generate_aes;
mod generate_key_pair;
mod initialize;
mod pin_status;
mod read_file;
mod reset_retry_counter;
mod select;
mod sign;
mod symmetric;
mod unwrap;
mod verify;
mod wrap;
mod write_file;

pub use dkek::DkekStatus;
pub use generate_aes::{AesAlgorithm, AesSize};
pub use generate_key_pair::{KeyPair, KeyPairKind};
pub use initialize::Initialize;
pub use pin_status::{PinReference, PinStatus};
pub use select::Application;
pub use sign::SignAlgorithm;
pub use verify::SoPin;
