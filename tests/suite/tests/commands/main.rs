//! The command line: what an administrator does, with real tokens behind it.

mod acts;
mod admin;
mod bench;
mod config;
mod doctor;
mod key_delete;
mod keys;
mod listeners;
mod members;
mod pins;
mod preload;
mod roster;
mod tls;
