//! The module's conduct, by the letter of PKCS#11: through its C functions, on a token in memory.

// Tests call C functions as a program does: with pointers to what is on their stacks.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks, clippy::borrow_as_ptr)]
#![allow(clippy::wildcard_imports)]

mod calls;
mod ciphers;
mod contexts;
mod daemons;
mod every;
mod exports;
mod forks;
mod initialise;
mod keys;
mod lengths;
mod loaded;
mod logins;
mod objects;
mod openssl;
mod parts;
mod provider;
mod refusals;
mod server;
mod soft;
mod threads;
