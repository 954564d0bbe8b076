//! What is wrong with a configuration file, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// How bad a mistake is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can, but somebody will be sorry.
    Warning,
}

/// One thing that is wrong with a configuration file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Mistake {
    /// About the file as a whole.
    pub fn whole(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            severity: Severity::Error,
            message: message.into(),
        }
    }

    /// Whether the file can still be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// As compilers print it: `hsmux.toml:7: unknown key ...`.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.is_error() {
            f.write_str(" warning:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for Mistake {}
