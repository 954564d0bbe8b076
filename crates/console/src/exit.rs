//! Exit codes.

use std::process::ExitCode;

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

/// The exit code of a program. Prints an error first.
pub fn tell(done: anyhow::Result<Exit>) -> ExitCode {
    let exit = done.unwrap_or_else(|error| {
        eprintln!("hsmux: {error:#}");
        Exit::of(&error)
    });
    exit.into()
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
