//! The command line: what an administrator does, with real tokens behind it.

mod acts;
mod admin;
mod bench;
mod config;
mod doctor;
mod exit_codes;
mod key_choice;
mod key_delete;
mod key_list;
mod keys;
mod lab;
mod listeners;
mod log;
mod members;
mod next_command;
mod output_schema;
mod pins;
mod preload;
mod roster;
mod systemd;
mod tables;
mod tls;
mod token_init;
