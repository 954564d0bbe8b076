//! libhsmux_pkcs11.so: the pool as one PKCS#11 token, and as a provider of OpenSSL 3.
//!
//! Thin exported shells (`entry`, and `provider::entry` for OpenSSL) over a safe library: pointers become
//! slices and values there, and what is inside knows nothing of C. Nothing is held on any token between two
//! calls. With the daemon, no thread is started and no PIN of a token is known here.
//!
//! | variable | what it does |
//! |---|---|
//! | `HSMUX_CONFIG` | names the configuration file, see [`hsmux_config::default_path`] |
//! | `HSMUX_SOCKET` | names the daemon's socket; then no configuration file is read |
//! | `HSMUX_DEBUG` | writes the sentence behind each error's CK_RV to standard error |
//!
//! A privileged program ignores all of them ([`setup::is_privileged`]).

// The numbers of PKCS#11 carry their own prefixes, and there are thousands.
#![allow(clippy::wildcard_imports)]

/// Plaintexts and PINs leave nothing in a program's memory once the module has freed them.
#[global_allocator]
static ALLOCATOR: hsmux_token::Wiping<std::alloc::System> = hsmux_token::Wiping(std::alloc::System);

#[allow(unsafe_code)]
pub mod entry;

mod app;
pub mod backend;
mod crypt;
mod debug;
mod key;
pub mod library;
mod login;
mod mechanisms;
mod object;
mod pair;
mod process_local;
pub mod provider;
mod rv;
mod session;
mod setup;
mod slot;
mod worker;
