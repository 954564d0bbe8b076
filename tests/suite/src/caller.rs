use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{PATIENCE, Rig, source};

/// A long-lived program that loads the module: `programs/caller.py`.
pub struct Caller {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    longest: Duration,
}

impl Caller {
    /// Starts the program on the rig's module, without calls.
    pub fn start(rig: &Rig) -> Self {
        Self::start_on(rig, rig.module())
    }

    /// The same on another module.
    pub fn start_on(rig: &Rig, module: impl AsRef<OsStr>) -> Self {
        let mut child = rig
            .run("/usr/bin/python3")
            .arg(source().join("tests/suite/programs/caller.py"))
            .arg(module)
            .into_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the caller");
        let requests = child.stdin.take().expect("its input");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            requests,
            answers,
            longest: Duration::ZERO,
        }
    }

    /// Starts the program with a session on the rig's token, logged in.
    pub fn open(rig: &Rig) -> Self {
        let mut caller = Self::start(rig);
        caller.ok("open", json!({"label": rig.label(), "pin": rig.pin()}));
        caller
    }

    /// Calls a `do_` function of `caller.py`, and returns its answer, or the module's CK_RV as an error.
    pub fn ask(&mut self, what: &str, arguments: Value) -> Result<Value, u64> {
        let mut request = arguments;
        request["do"] = what.into();
        writeln!(self.requests, "{request}").expect("ask the caller");
        let line = self
            .answers
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("{what}: no answer from the caller: {error}"));
        let mut answer: Value = serde_json::from_str(&line).expect("JSON from the caller");
        let longest = answer["longest"].as_f64().expect("seconds");
        self.longest = Duration::from_secs_f64(longest);
        match answer["rv"].as_u64() {
            Some(rv) => Err(rv),
            None => Ok(answer["ok"].take()),
        }
    }

    /// The same for a call that must succeed.
    #[track_caller]
    pub fn ok(&mut self, what: &str, arguments: Value) -> Value {
        self.ask(what, arguments)
            .unwrap_or_else(|rv| panic!("{what}: CK_RV 0x{rv:08x}"))
    }

    /// The longest call of the module during the last request.
    pub fn longest_call(&self) -> Duration {
        self.longest
    }

    /// Its number of threads.
    pub fn threads(&self) -> usize {
        let tasks = format!("/proc/{}/task", self.child.id());
        fs::read_dir(tasks).expect("the threads").count()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
