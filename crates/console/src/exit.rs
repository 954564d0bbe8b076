//! Exit codes.

use std::process::ExitCode;

/// What scripts are told; documented in `hsmux --help`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All is well.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// The arguments or the configuration are wrong.
    Usage = 2,
    /// It works, but not all of it does.
    Degraded = 3,
    /// The daemon is not reached.
    NoDaemon = 4,
}

/// An error that knows its exit code.
#[derive(Debug)]
pub struct Coded {
    /// The code.
    pub exit: Exit,
    /// What went wrong.
    pub message: String,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}

impl Exit {
    /// The code of an error; 1 where it does not say.
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

/// The exit code of what a program has done. An error is told first.
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
