//! Mistakes in a configuration file, and their lines.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The severity of a mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably not as intended.
    Warning,
}

/// One mistake in a configuration file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Its severity.
    pub severity: Severity,
    /// The mistake, and the correction.
    pub message: String,
}

impl Mistake {
    /// A mistake of the file as a whole.
    pub fn whole(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            severity: Severity::Error,
            message: message.into(),
        }
    }

    /// Whether the file cannot be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Formats it as compilers do: `hsmux.toml:7: unknown key ...`.
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
