//! The same library as a provider of OpenSSL 3: private keys in files that only name them.
//!
//! For programs that read their keys from PEM files, haproxy first of all: the file has a reference
//! ([`hsmux_software::reference`]) in place of the key. The provider decodes it, signs and deciphers with the key,
//! and shows its public half. Whatever else is done with public keys is left to OpenSSL's own provider.
//!
//! As `crate::entry` is for PKCS#11, `entry` is the thin shell with the pointers. Beneath it a `key::ProviderKey` holds what
//! the key is, no handle and no connection, so that it serves in a fork's child as in its parent; and
//! `context::ProviderContext` has the way to the pool, for each process its own.

#[allow(unsafe_code)]
pub mod entry;

mod cipher;
mod context;
mod find;
mod key;
mod names;
mod pem;
mod scheme;
mod signing;
mod text;
mod value;
