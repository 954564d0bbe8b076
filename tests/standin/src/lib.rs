//! A stand-in for a vendor's PKCS#11 module, with faults on order. **It protects nothing**: its keys
//! are in this source, its fast signatures give their key away, and its PINs stand in a text file.
//!
//! # The control file
//!
//! `libx.so` reads `libx.so.toml` beside itself; where that is missing, the file that `HSMUX_STANDIN`
//! names. So copies of the module under other names can be different tokens in one process. The file
//! is looked at again at every call: replace it (by rename) to change what happens next. See
//! [`control::Control`] and [`control::TokenControl`] for every setting; an unknown one makes each
//! call fail with CKR_ARGUMENTS_BAD and a line on stderr.
//!
//! ```toml
//! crash_in_initialize = false
//!
//! [defaults]                 # for every token
//! service_time_us = 5000
//! fast_sign = true
//! state = "/tmp/test/state"
//!
//! [[token]]
//! label = "m1"
//!
//! [[token]]
//! label = "m2"
//! service_time_us = 20000
//! ```
//!
//! # Another module behind it
//!
//! With `forward = "/usr/lib/softhsm/libsofthsm2.so"` on top of the file, tokens and keys are those of that
//! module, and the first `[[token]]` says what faults the use of its keys has. `churn = {}` there makes of
//! SoftHSM what it was before 2.4.0: slow for good once another process has added or removed keys.
//!
//! # What a token holds
//!
//! RSA-2048 (CKA_ID 01, label `rsa`), EC P-256 (02, `ec`) and AES-256 (03, `aes`); public, private and
//! secret keys by the usual attributes. Tokens with one `key_seed` hold the same keys. With `ml-dsa` in `keys` a token
//! has a pair of type CKK_ML_DSA, too (04, `ml-dsa`), whose signatures nobody else can check: they are hashes.
//! `ml-dsa-twin` is a private key that looks the same and is not to be used.
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
