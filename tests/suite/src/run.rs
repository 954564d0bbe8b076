use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::wait::{PATIENCE, poll};

/// A program that runs to its end, with a time limit and without the caller's terminal.
pub struct Run {
    command: Command,
    input: Vec<u8>,
    limit: Duration,
}

impl Run {
    /// A program by name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.process_group(0).env("LC_ALL", "C");
        Self {
            command,
            input: Vec::new(),
            limit: PATIENCE,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds the words of a line, split at white space.
    #[must_use]
    pub fn args(mut self, line: &str) -> Self {
        self.command.args(line.split_whitespace());
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the program's working folder.
    #[must_use]
    pub fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the program's standard input.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sets the time limit in seconds; [`PATIENCE`] by default.
    #[must_use]
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// The command for a background process, which the kernel kills when the starting thread ends. It has its own
    /// session: Linux shares CPUs out among sessions (sched(7), autogroup), so a common one would distort measurements.
    pub(crate) fn into_command(self) -> Command {
        let mut command = Command::new("setsid");
        command
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .arg(self.command.get_program())
            .args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        command
    }

    /// Runs it; panics if it cannot start or exceeds its limit.
    /// The output goes to files, so that a grandchild that keeps it open delays nobody.
    pub fn finish(mut self) -> Finished {
        let file = || tempfile::tempfile().expect("a temporary file");
        let (mut input, mut out, mut err) = (file(), file(), file());
        input.write_all(&self.input).expect("write the input");
        input.rewind().expect("rewind the input");
        let share = |file: &File| Stdio::from(file.try_clone().expect("share a file"));
        self.command
            .stdin(input)
            .stdout(share(&out))
            .stderr(share(&err));
        let line = format!("{:?}", self.command);
        let start = Instant::now();
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let mut status = poll(self.limit, || child.try_wait().expect("wait for a child"));
        let took = start.elapsed();
        let in_time = status.is_some();
        if !in_time {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            status = child.wait().ok();
        }
        let finished = Finished {
            line,
            code: status.and_then(|status| status.code()),
            out: text(&mut out),
            err: text(&mut err),
            took,
        };
        assert!(in_time, "not within {:?}\n{finished}", self.limit);
        finished
    }

    /// Runs it; panics with its output unless it exits with 0.
    #[track_caller]
    pub fn ok(self) -> Finished {
        let finished = self.finish();
        assert_eq!(finished.code, Some(0), "it should have worked\n{finished}");
        finished
    }

    /// Runs it; panics with its output if it exits with 0.
    #[track_caller]
    pub fn fails(self) -> Finished {
        let finished = self.finish();
        assert_ne!(finished.code, Some(0), "it should have failed\n{finished}");
        finished
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("read the output");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The result of a program.
#[derive(Debug)]
pub struct Finished {
    line: String,
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// Its duration.
    pub took: Duration,
}

impl Finished {
    /// Both outputs, one after the other.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Panics with the output unless it contains `text`, in any case.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        let said = self.all().to_lowercase().contains(&text.to_lowercase());
        assert!(said, "it should have said {text:?}\n{self}");
        self
    }

    /// Panics with the output if it contains `text`, in any case.
    #[track_caller]
    pub fn never_says(&self, text: &str) -> &Self {
        let said = self.all().to_lowercase().contains(&text.to_lowercase());
        assert!(!said, "it should not have said {text:?}\n{self}");
        self
    }
}

impl Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            line,
            code,
            out,
            err,
            took,
        } = self;
        write!(f, "$ {line}\n{out}{err}[exit {code:?} after {took:?}]")
    }
}
