//! The functions that OpenSSL calls: each is a guard, pointers that become values, and a call into safe code.
//!
//! The numbers and types are those of openssl/core.h and core_dispatch.h, which OpenSSL 3 keeps stable.

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
