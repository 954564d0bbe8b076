//! Exit codes, and how errors are printed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use hsmux_daemon::admin::AdminFailure;
use hsmux_token::Error;
use serde::Serialize;

/// Exit codes for scripts; documented in `hsmux --help`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// Failure.
    Failed = 1,
    /// Wrong arguments or configuration.
    Usage = 2,
    /// Partial success.
    Degraded = 3,
    /// The daemon cannot be reached.
    NoDaemon = 4,
}

/// An error with an exit code.
#[derive(Debug)]
pub struct Coded {
    /// The code.
    pub exit: Exit,
    /// The message.
    pub message: String,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}

impl Exit {
    /// The exit code of an error; 1 by default.
    pub fn of(error: &anyhow::Error) -> Self {
        error
            .downcast_ref::<Coded>()
            .map_or(Self::Failed, |coded| coded.exit)
    }

    /// An error with this code.
    pub fn because(self, message: impl Into<String>) -> anyhow::Error {
        let message = message.into();
        Coded {
            exit: self,
            message,
        }
        .into()
    }
}

/// The exit code of a program. Prints an error first, in one line of JSON if `as_json`.
pub fn tell(done: anyhow::Result<Exit>, as_json: bool) -> ExitCode {
    done.unwrap_or_else(|error| print(&error, as_json)).into()
}

/// Parses the arguments. Prints help or a mistake, and ends the program, if there is no command to run.
pub fn parse<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|mistake| {
        let is_json = || std::env::args_os().any(|argument| argument == "--json");
        if !mistake.use_stderr() || !is_json() {
            mistake.exit();
        }
        let text = mistake.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        let exit = print(&Exit::Usage.because(text), true);
        std::process::exit(exit as i32)
    })
}

fn print(error: &anyhow::Error, as_json: bool) -> Exit {
    let exit = Exit::of(error);
    let message = with_sudo(format!("{error:#}"), rustix::process::geteuid().is_root());
    let json = || serde_json::to_string(&ErrorLine::of(error, &message, exit)).ok();
    match as_json.then(json).flatten() {
        Some(line) => eprintln!("{line}"),
        None => eprintln!("hsmux: {message}"),
    }
    exit
}

/// Adds the next command to an error of permissions that has none.
fn with_sudo(message: String, is_root: bool) -> String {
    let is_denied = message.contains("Permission denied");
    if !is_denied || is_root || message.contains("sudo ") {
        return message;
    }
    format!("{message}\nroot and the daemon's own user may do this: sudo hsmux ...")
}

/// An error in JSON; `docs/output-schema.json` describes it.
#[derive(Serialize)]
struct ErrorLine {
    error: ErrorFields,
}

#[derive(Serialize)]
struct ErrorFields {
    message: String,
    exit_code: u8,
    kind: Option<String>,
    details: BTreeMap<String, String>,
}

impl ErrorLine {
    fn of(error: &anyhow::Error, message: &str, exit: Exit) -> Self {
        let of_daemon = error.downcast_ref::<AdminFailure>();
        let own = || Some(format!("{:?}", error.downcast_ref::<Error>()?.kind()));
        let fields = ErrorFields {
            message: message.to_owned(),
            exit_code: exit as u8,
            kind: of_daemon.map(|failure| failure.kind.clone()).or_else(own),
            details: of_daemon
                .map(|failure| failure.details.clone())
                .unwrap_or_default(),
        };
        Self { error: fields }
    }
}

/// The message of an error that a child process of this program printed with `--json`, if there is one.
pub fn message_of(stderr: &str) -> Option<String> {
    let line = |line: &str| -> Option<serde_json::Value> { serde_json::from_str(line).ok() };
    let mut lines = stderr.lines().rev().filter_map(line);
    lines.find_map(|line| Some(line["error"]["message"].as_str()?.to_owned()))
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
