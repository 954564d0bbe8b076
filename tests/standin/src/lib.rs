//! A stand-in for a vendor's PKCS#11 module, with faults on order. **It protects nothing**: its keys
//! are in this source, its fast signatures reveal them, and its PINs are in a text file.
//!
//! # The control file
//!
//! `libx.so` reads `libx.so.toml` beside itself or, if that is missing, the file in `HSMUX_STANDIN`. So copies with
//! other names are different tokens in one process. The file is checked at every call: replace it by rename to change
//! the behaviour. [`control::ControlFile`] and [`control::TokenControl`] have all settings. After an unknown setting,
//! calls fail with CKR_ARGUMENTS_BAD and a line on stderr.
//!
//! ```toml
//! crash_in_initialize = false
//!
//! [defaults]                 # for every token service_time_us = 5000 fast_sign = true state = "/tmp/test/state"
//!
//! [[token]] label = "m1"
//!
//! [[token]]
//! label = "m2"
//! service_time_us = 20000
//! ```
//!
//! # Another module behind it
//!
//! With `forward = "/usr/lib/softhsm/libsofthsm2.so"` at the top, that module provides the tokens and keys, and the
//! first `[[token]]` the faults of their uses. With `churn = {}` SoftHSM behaves as before 2.4.0: slow after another
//! process has added or removed keys.
//!
//! # What a token holds
//!
//! RSA-2048 (CKA_ID 01, label `rsa`), EC P-256 (02, `ec`) and AES-256 (03, `aes`), with the usual attributes. Tokens
//! with the same `key_seed` hold the same keys. With `ml-dsa` in `keys` a token also has a pair of type CKK_ML_DSA
//! (04, `ml-dsa`), whose signatures are hashes that nobody else can check. `ml-dsa-twin` is a private key that looks
//! the same and must not be used.
#![allow(unsafe_code)] // It is C to its callers; all of it is in `calls`.
#![allow(non_snake_case)] // C_Sign.
#![allow(clippy::wildcard_imports)] // The numbers of PKCS#11 carry their prefix.
#![allow(clippy::missing_safety_doc)] // The standard's.

mod calls;
mod churn;
mod control;
mod device;
mod keys;
mod objects;
mod pins;
mod reach;
mod world;
