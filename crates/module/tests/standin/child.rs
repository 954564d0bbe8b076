//! Work in a child process that a test can kill.

use std::process::{Child, Command};

use hsmux_module::{ModuleToken, change_pin};
use hsmux_token::{Secret, Token};

use crate::fixture::{StandIn, private, sign, soon};

/// The child's work; it exits with success if the work succeeds.
#[derive(Clone, Copy)]
pub enum Work {
    /// Logs in.
    Open,
    /// Logs in and signs.
    Sign,
    /// Changes the PIN to `new-pin`.
    ChangePin,
}

const TASK: &str = "HSMUX_TEST_TASK";

/// Starts the work with a PIN in a child process.
pub fn start(standin: &StandIn, work: Work, pin: &str) -> Child {
    let task = match work {
        Work::Open => "open",
        Work::Sign => "sign",
        Work::ChangePin => "change-pin",
    };
    let folder = standin.folder.path().to_str().unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child::another_process_does_its_task", "--quiet"])
        .env(TASK, [task, pin, folder].join(" "))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs it to its end; returns whether it succeeded.
pub fn succeeds(standin: &StandIn, work: Work, pin: &str) -> bool {
    start(standin, work, pin).wait().unwrap().success()
}

/// The entry point of the child process; in a normal test run it has no task.
#[test]
fn another_process_does_its_task() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let [task, pin, folder] = task.splitn(3, ' ').collect::<Vec<_>>()[..] else {
        panic!("{task}");
    };
    let options = hsmux_module::Options {
        module: [folder, "libtoken.so"].iter().collect(),
        slot: hsmux_token::Uri::default(),
        pin: Some(Secret::new(pin.into())),
        sessions: 1,
        state: [folder, "state"].iter().collect(),
        name: "child".into(),
        copies: None,
        member: None,
        uri: None,
    };
    if task == "change-pin" {
        return change_pin(&options, &Secret::new("new-pin".into())).unwrap();
    }
    let token = ModuleToken::open(options).unwrap();
    if task == "sign" {
        let key = private(&token, "ec");
        token.execute(&sign(key, [1; 32]), soon()).unwrap();
    }
}
