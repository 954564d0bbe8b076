//! Has the program itself check the configuration that was written for it.

use std::io::{ErrorKind, Write};
use std::process::Command;

use hsmux_token::{Error, Kind, Result};

use super::Program;

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Checked {
    /// The program accepts it.
    Good,
    /// There is no such program on this machine.
    NotInstalled,
}

impl Program {
    /// The program's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// Has the program read a configuration. Nothing is started.
    ///
    /// # Errors
    /// The program's own message if it refuses the configuration.
    pub fn check(self, configuration: &str) -> Result<Checked> {
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            Error::pool(Kind::Environment, format!("{what}: {why}"))
        };
        let mut command = Command::new(self.name());
        let text = match self {
            Self::Haproxy => {
                command.args(["-c", "-f"]);
                configuration.to_owned()
            }
            Self::Nginx => {
                command.args(["-t", "-q", "-e", "stderr", "-g", "pid /dev/null;", "-c"]);
                format!("include /etc/nginx/modules-enabled/*.conf;\nevents {{}}\n{configuration}")
            }
        };
        let mut file = tempfile::NamedTempFile::new().map_err(|error| failed("a file", &error))?;
        file.write_all(text.as_bytes())
            .map_err(|error| failed("a file", &error))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let output = command
            .arg(file.path())
            // Folders of daemons, which a user's PATH may not have.
            .env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin"))
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Checked::NotInstalled),
            Err(error) => return Err(failed(self.name(), &error)),
        };
        if output.status.success() {
            return Ok(Checked::Good);
        }
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        let why: Vec<_> = words
            .lines()
            .filter(|line| !line.starts_with("[NOTICE]"))
            .collect();
        let what = format!("{} refuses this configuration", self.name());
        Err(failed(&what, &why.join("\n")))
    }
}
