//! The command `hsmux`: arguments, output and errors. The libraries do the work.

mod commands;

use std::process::ExitCode;

use hsmux_console::{consent, context, exit, memory, output, pin, progress, rest};
use hsmux_daemon::admin;

use crate::commands::{Cli, lab};

fn main() -> ExitCode {
    // Workers inherit this.
    memory::refuse_huge_pages();
    // These serve only their parent, and some hold PINs: clap must not parse their arguments.
    match std::env::args_os().nth(1) {
        Some(first) if first == "worker" => return hsmux_worker::worker_main(),
        Some(first) if first == "link" => return hsmux_node::link_main(),
        Some(first) if first == admin::PIN_CHANGE_ARGUMENT => return admin::pin_change_main(),
        Some(first) if first == "help" && lab::explains(std::env::args_os().nth(2).as_deref()) => {
            return exit::tell(lab::start("help"), false);
        }
        _ => {}
    }
    let cli: Cli = exit::parse();
    let as_json = cli.is_json();
    exit::tell(cli.run(), as_json)
}
