//! A vendor's PKCS#11 module as a [`Token`](hsmux_token::Token): the only crate that calls PKCS#11.
//! [`ModuleToken`] is one token of one module. It caches sessions and object handles, so that an operation is one
//! C_XInit and one C_X. Logins go through the breaker in [`pin`]. Free functions change PINs and list slots.
// The numbers of PKCS#11 have a common prefix; a list of eighty adds nothing.
#![allow(clippy::wildcard_imports)]
#![allow(unsafe_code)] // The vendor's functions are C. All of it is in `library`, `params` and `template`.

mod admin;
mod by_name;
mod classes;
mod copies;
mod execute;
mod key_writer;
mod library;
mod look;
mod make;
mod object_cache;
mod objects;
mod options;
mod pace;
mod params;
pub mod pin;
mod prepared;
mod search;
mod sessions;
mod slots;
mod stream;
mod streams;
mod template;
mod threads;
mod token;
mod usual_durations;
mod worth;

pub use admin::{change_pin, init_pin, init_token};
pub use key_writer::KeyWriter;
pub use library::observe;
pub use options::{Options, SlotSelector};
pub use slots::{SlotInfo, public_objects, slots};
pub use token::ModuleToken;
