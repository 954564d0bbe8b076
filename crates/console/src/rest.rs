//! Parks members while a command works on them, and resumes them however the command ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::context::Context;

/// A process that resumes members when this one ends, even if killed: then its standard input ends.
/// On drop it ends without an action.
pub struct Rest(Child);

impl Rest {
    /// Start it before the first member is parked. `hsmux` is the program to run.
    pub fn of(hsmux: &Path, context: &Context, members: &[String]) -> anyhow::Result<Self> {
        let process = Command::new(hsmux)
            .arg("--config")
            .arg(context.file())
            .args(["token", "resume", "--at-end-of-input"])
            .args(members)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl+C at the terminal is for the command, not for this process.
            .process_group(0)
            .spawn();
        let process = process.context("the process that puts members back cannot be started");
        Ok(Self(process?))
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
