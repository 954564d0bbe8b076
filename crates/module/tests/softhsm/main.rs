//! [`ModuleToken`] on SoftHSM: one configuration for the process, one token for each test.
#![allow(unsafe_code)]

mod copies;
mod fixture;
mod keys;
mod objects;
mod pins;
mod ready;
mod session_objects;
mod stream;
mod threads;
mod tokens;
