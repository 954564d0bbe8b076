//! Parts of the measurement in child processes, with a protocol of lines.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use hsmux_token::{Error, Kind, Result};
use serde::de::DeserializeOwned;

use super::{ChurnOptions, LoadedService, SoftHsmStore};
use crate::Measurement;

/// A child process; it ends when its input ends.
pub struct Child {
    process: process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts it; its first line says that it is ready.
    pub fn start(command: &mut Command) -> Result<Self> {
        let started = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl+C is for the measuring process: a part ends with its input.
            .process_group(0)
            .spawn()
            .map_err(|e| lost(&e))?;
        Self::of(started)
    }

    fn of(mut process: process::Child) -> Result<Self> {
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::pool(Kind::Lost, "a process without pipes"));
        };
        let mut child = Self {
            process,
            input: Some(input),
            output: BufReader::new(output),
        };
        child.answer::<()>()?;
        Ok(child)
    }

    /// Sends a command and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        self.tell(line)?;
        self.answer()
    }

    /// Sends a command.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut();
        let input = input.ok_or_else(|| Error::pool(Kind::Lost, "it has been ended"))?;
        writeln!(input, "{line}").map_err(|e| lost(&e))
    }

    /// Reads an answer in JSON; errors are texts.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).map_err(|e| lost(&e))?;
        if read == 0 {
            return Err(lost(&"it has ended"));
        }
        let answer: std::result::Result<T, String> =
            serde_json::from_str(&line).map_err(|e| Error::protocol(format!("{e}: {line}")))?;
        answer.map_err(|text| Error::pool(Kind::Lost, text))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.input = None;
        end(&mut self.process);
    }
}

/// Waits for a process that has to end; kills it if it hangs in the module.
pub(super) fn end(process: &mut process::Child) {
    for _ in 0..200 {
        if !is_running(process) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    let _ = process.wait();
}

/// Whether a child process still runs.
pub(super) fn is_running(process: &mut process::Child) -> bool {
    matches!(process.try_wait(), Ok(None))
}

fn lost(error: &dyn std::fmt::Display) -> Error {
    Error::pool(Kind::Lost, format!("a part of the measurement: {error}"))
}

/// Callers in a process that uses the key without hsmux, a thread each.
pub struct Bare {
    child: Option<Child>,
    store: SoftHsmStore,
    load: String,
}

impl Bare {
    pub(super) fn start(store: SoftHsmStore, options: &ChurnOptions) -> Result<Self> {
        Ok(Self {
            child: Some(store.bare_part()?),
            store,
            load: format!("load {} {}", options.callers, options.payload),
        })
    }
}

impl LoadedService for Bare {
    fn restart(&mut self) -> Result<()> {
        // The previous process ends first.
        self.child = None;
        self.child = Some(self.store.bare_part()?);
        Ok(())
    }

    fn load(&mut self, during: &mut dyn FnMut() -> Result<()>) -> Result<Measurement> {
        let child = self.child.as_mut();
        let child = child.ok_or_else(|| Error::pool(Kind::Lost, "it was not restarted"))?;
        child.ask::<()>(&self.load)?;
        let done = during();
        let measured = child.ask("stop");
        done.and(measured)
    }
}

/// Another process that adds and removes keys.
pub struct KeyChangeProcess(pub(super) Child);

/// Keys that change continuously.
pub struct KeyChanges<'a>(&'a mut KeyChangeProcess);

impl KeyChangeProcess {
    /// Adds or removes keys until there are `count` besides the one in use.
    pub fn bring_to(&mut self, count: usize) -> Result<()> {
        self.0.ask(&format!("keys {count}"))
    }

    /// Adds and removes a key in turn, with a pause after each change.
    pub fn change(&mut self, pause: Duration) -> Result<KeyChanges<'_>> {
        self.0.ask::<()>(&format!("change {}", pause.as_millis()))?;
        Ok(KeyChanges(self))
    }
}

impl KeyChanges<'_> {
    /// Ends the changes; returns their number.
    pub fn stop(self) -> Result<u64> {
        self.0.0.ask("stop")
    }
}
