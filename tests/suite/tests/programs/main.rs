//! Real programs on the module: each test runs on the bare token, through the daemon and with the
//! pool embedded in the program, and asks the same of all three.

mod damaged;
mod edwards;
mod fork;
mod generated;
mod java;
mod legacy;
mod nss;
mod openssl;
mod p11_kit;
mod p11tool;
mod parameters;
mod pkcs11_tool;
mod privileged;
mod python;
mod session_keys;
mod ssh;
mod threadless;

use hsmux_suite::{Finished, Rig, Setup, source};

/// Members that serve in turns: objects that have to stay together would be found apart at once.
fn serving_in_turns(setup: Setup, members: usize) -> Rig {
    let mut rig = Rig::prepare(setup, members);
    rig.config.pool.push_str("\npolicy = \"round-robin\"");
    rig.write_config();
    if setup == Setup::Daemon {
        rig.start();
    }
    rig
}

/// Runs a program of `programs/` on the token of a rig.
fn run(rig: &Rig, program: &str) -> Finished {
    rig.run("/usr/bin/python3")
        .arg(source().join("tests/suite/programs").join(program))
        .arg(rig.module())
        .arg(rig.label())
        .arg(rig.pin())
        .ok()
}

/// The same on members that serve in turns.
fn in_turns(program: &str, setup: Setup, members: usize) -> Finished {
    run(&serving_in_turns(setup, members), program)
}
