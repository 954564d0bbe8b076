//! The same library as a provider of OpenSSL 3: private keys in files that only name them.
//!
//! For programs that read their keys from PEM files, haproxy first of all. The file has a reference
//! ([`hsmux_software::reference`]) in place of the key. The provider decodes it, signs and deciphers with the key,
//! and shows its public half. OpenSSL's own provider does everything else with public keys.
//!
//! `entry` is the thin shell with the pointers, as `crate::entry` is for PKCS#11. A `key::ProviderKey` describes the
//! key without a handle or a connection: it works in a fork's child as in its parent. `context::ProviderContext` has
//! the connection to the pool, one for each process.

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
