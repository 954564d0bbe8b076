//! libhsmux_pkcs11.so: the pool as one PKCS#11 token.
//!
//! A thin exported shell (`entry`, the only part with `unsafe`) over a safe library: pointers become
//! slices there, and what is inside knows nothing of C. No thread is started, no PIN of a token is
//! known here, and nothing is held on any token between two calls.

// The numbers of PKCS#11 carry their own prefixes, and there are thousands.
#![allow(clippy::wildcard_imports)]

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
mod rv;
mod session;
mod setup;
mod slot;
mod worker;
