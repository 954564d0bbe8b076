//! What OpenSSL calls: each function is a guard, pointers that become values, and a call into safe code.
//!
//! The numbers and types are those of openssl/core.h and core_dispatch.h, which OpenSSL 3 keeps as they are.

mod abi;
mod agreement;
mod cipher;
mod core;
mod decoder;
mod encoder;
mod guard;
mod init;
mod keymgmt;
mod octets;
mod param;
mod signature;

pub use init::OSSL_provider_init;
