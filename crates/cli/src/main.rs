//! The command `hsmux`: arguments in, words out. What it does is in the libraries.

mod commands;
mod consent;
mod context;
mod exit;
mod output;
mod pin;
mod progress;
mod rest;

use std::process::ExitCode;

use clap::Parser;
use hsmux_daemon::admin;
use hsmux_token::Wiping;

use crate::commands::Cli;

/// Requests are made of small blocks that live for a moment, on several threads: the system's allocator takes a
/// fifth of the time of each. And it does not find again what was aligned, as the memory that the check of a PIN
/// takes (glibc before 2.38, bug 14581): a daemon grew by that with each login. It stands in for `malloc`, too (glibc's
/// manual, "Replacing malloc"): a signature of SoftHSM's takes a tenth less, and a handshake of BoringSSL's some.
#[global_allocator]
static ALLOCATOR: Wiping<mimalloc::MiMalloc> = Wiping(mimalloc::MiMalloc);

fn main() -> ExitCode {
    // The allocator asks for huge pages, of which each thread's few blocks fill a part: a broker of 1,000 connections
    // takes half as much memory again with them, and is no faster. Workers inherit this.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    // These speak with their parent only, and some hold PINs: they are not for clap to look at.
    match std::env::args_os().nth(1) {
        Some(first) if first == "worker" => return hsmux_worker::worker_main(),
        Some(first) if first == "link" => return hsmux_node::link_main(),
        Some(first) if first == admin::DESK => return admin::desk_main(),
        Some(first) if first == commands::PART => return commands::part_main(),
        _ => {}
    }
    Cli::parse().main()
}
