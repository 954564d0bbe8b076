//! Members that rest while a command works on them, and no longer, however the command ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::context::Context;

/// A process of its own that puts members back into service when this one has ended, killed or not: then its
/// standard input ends. Dropped, it ends without doing anything.
pub struct Rest(Child);

impl Rest {
    /// To be there before the first member is parked. `hsmux` is that program.
    pub fn of(hsmux: &Path, context: &Context, members: &[String]) -> anyhow::Result<Self> {
        let process = Command::new(hsmux)
            .arg("--config")
            .arg(context.file())
            .args(["token", "resume", "--at-end-of-input"])
            .args(members)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl+C at the terminal means the command, and not what follows it.
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
