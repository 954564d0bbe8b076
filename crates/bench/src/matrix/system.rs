//! The system under test: the process that a cell's command starts.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::Cell;
use crate::RunControl;
use crate::tls::{self, TlsOptions};

/// A running system under test; it ends on drop.
pub struct System {
    cell: Cell,
    child: Child,
    log: File,
}

/// The interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The time for an answer of a running system.
const ANSWER: Duration = Duration::from_secs(1);

/// How long it may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

impl System {
    /// Starts it and waits for an answer or an interruption. Its output goes to a file beside the state.
    pub fn start(cell: &Cell, state: &Path, control: RunControl<'_>) -> Result<Self> {
        let mut path = state.as_os_str().to_owned();
        path.push(".log");
        let failed = |why: &dyn std::fmt::Display| {
            let message = format!("{}: {why}; see {}", cell.start, path.display());
            Error::pool(Kind::Environment, message)
        };
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|e| failed(&e))?;
        let mut options = cell.options()?;
        wait_for_shutdown(&mut options, control).map_err(|why| failed(&why))?;
        let child = shell(&cell.start, cell, &log).and_then(|mut command| command.spawn());
        let child = child.map_err(|e| failed(&e))?;
        let mut this = Self {
            cell: cell.clone(),
            child,
            log,
        };
        let ready = Duration::from_secs_f64(cell.ready_s);
        let began = Instant::now();
        while !control.stopped() {
            // Some commands start a daemon and exit successfully.
            if let Some(status) = this.child.try_wait().map_err(|e| failed(&e))?
                && !status.success()
            {
                return Err(failed(&format_args!("it has ended: {status}")));
            }
            options.timeout = ready.saturating_sub(began.elapsed()).max(POLL_INTERVAL);
            match tls::answers(&options) {
                Ok(_) => return Ok(this),
                Err(error) if began.elapsed() >= ready => {
                    return Err(failed(&format_args!("no answer within {ready:?}: {error}")));
                }
                Err(_) => sleep(POLL_INTERVAL),
            }
        }
        Ok(this)
    }

    /// Whether it fits this cell: only the load differs.
    pub fn serves(&self, cell: &Cell) -> bool {
        let same = Cell {
            users: self.cell.users,
            think_s: self.cell.think_s,
            ..cell.clone()
        };
        same == self.cell
    }

    /// The started process, while it runs.
    pub fn id(&self) -> Option<u32> {
        let id = self.child.id();
        Path::new(&format!("/proc/{id}/stat"))
            .exists()
            .then_some(id)
    }

    fn end(&mut self) -> std::io::Result<()> {
        if let Some(stop) = &self.cell.stop {
            shell(stop, &self.cell, &self.log)?.status()?;
        }
        // After a wait, the process id may belong to another process.
        for signal in [Signal::TERM, Signal::KILL] {
            let until = Instant::now() + STOP_TIMEOUT;
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            kill_process_group(Pid::from_child(&self.child), signal)?;
            while self.child.try_wait()?.is_none() && Instant::now() < until {
                sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // If it still answers, the next start fails with that message.
        let _ = self.end();
    }
}

/// Waits until nothing answers: another server would be measured in place of the new one.
fn wait_for_shutdown(options: &mut TlsOptions, control: RunControl<'_>) -> Result<(), String> {
    options.timeout = ANSWER;
    let until = Instant::now() + STOP_TIMEOUT;
    while !control.stopped() && tls::answers(options).is_ok() {
        if Instant::now() >= until {
            return Err(format!("{} answers already; end that first", options.url));
        }
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A shell command, with the cell in its environment.
fn shell(line: &str, cell: &Cell, log: &File) -> std::io::Result<Command> {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(&cell.folder)
        .env("HSMUX_KEY", &cell.key)
        .env("HSMUX_HSMS", cell.hsms.to_string())
        .env("HSMUX_MODULE", &cell.module)
        .env("HSMUX_PAGE", &cell.page)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .process_group(0);
    Ok(command)
}
