//! `hsmux vcard run`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use hsmux_vcard::reader::{CardStore, ControlServer, Readers};
use hsmux_vcard::{Timing, TimingError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::exit::Exit;
use crate::{output, progress};

/// The environment variable with the cards' folder, for the other commands.
pub const FOLDER: &str = "HSMUX_VCARD";

/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

const WARNING: &str = "virtual cards are for tests: they protect nothing, keys and PINs lie open";

/// Options of `hsmux vcard run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux vcard run                                # 8 cards, until Ctrl+C\n  \
    hsmux vcard run --count 2 -- opensc-tool -l    # until the command ends, with its exit code\n  \
    hsmux vcard run --state ./cards --timing smartcard-hsm\n\n\
    The cards have a separate pcscd. Standard output has the environment variables for programs that use\n\
    them; COMMAND gets these variables automatically.")]
pub struct RunCards {
    /// The number of cards, at most 16, the limit of pcscd
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    count: u8,

    /// Service times of the cards: none, smartcard-hsm (as published), or a TOML file
    #[arg(long, default_value = "none", value_name = "TIMING")]
    timing: String,

    /// A folder that stores the cards for later runs [default: new cards, discarded at the end]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// A command to run with these cards; they end with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunCards {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let timing = self.timing()?;
        // Before anything exists that has to be taken down.
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let waiting = progress::spinner("making cards and readers");
        // Kept until the end, because it is the folder's lock.
        let store = match &self.state {
            Some(folder) => CardStore::open(folder)?,
            None => CardStore::none(),
        };
        let readers = store.start(self.count.into(), &timing);
        waiting.finish_and_clear();
        let readers = Arc::new(readers?);
        let control = ControlServer::open(Arc::clone(&readers))?;
        eprintln!("{WARNING}");
        if !readers.isolated() {
            eprintln!(
                "vpcd listens on all interfaces: whoever reaches this machine can reach them"
            );
        }
        if self.command.is_empty() {
            print(context, &readers)?;
            wait(signals);
            drop((control, readers));
            return Ok(Exit::Done);
        }
        let status = with_command(&self.command, &environment(&readers), signals)?;
        drop((control, readers));
        match status.code() {
            Some(0) => Ok(Exit::Done),
            Some(code) => std::process::exit(code),
            None => Err(anyhow::anyhow!("the command: {status}")),
        }
    }

    fn timing(&self) -> anyhow::Result<Timing> {
        if Path::new(&self.timing)
            .extension()
            .is_none_or(|end| end != "toml")
        {
            let timing: Result<_, TimingError> = self.timing.parse();
            return timing.map_err(|error| Exit::Usage.because(error.to_string()));
        }
        let text = fs::read_to_string(&self.timing).with_context(|| self.timing.clone())?;
        Timing::from_toml(&text)
            .map_err(|error| Exit::Usage.because(format!("{}: {error}", self.timing)))
    }
}

/// The environment for programs that use the cards.
fn environment(readers: &Readers) -> Vec<(&'static str, PathBuf)> {
    let mut variables = readers.environment().to_vec();
    variables.push((FOLDER, readers.folder().to_owned()));
    variables
}

fn print(context: &Context, readers: &Readers) -> anyhow::Result<()> {
    if context.json {
        let variables: serde_json::Map<_, _> = environment(readers)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        output::json(&json!({
            "warning": WARNING,
            "isolated": readers.isolated(),
            "environment": variables,
            "cards": readers.states(),
        }))?;
    } else {
        for (name, value) in environment(readers) {
            println!("export {name}={}", quoted(&value));
        }
    }
    // The reader of a pipe waits for this output.
    Ok(io::stdout().flush()?)
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn wait(mut signals: Signals) {
    signals.forever().next();
}

/// Runs the command to its end. The terminal sends Ctrl+C to the command as well; other signals end it and its
/// descendants.
fn with_command(
    command: &[OsString],
    environment: &[(&'static str, PathBuf)],
    mut signals: Signals,
) -> anyhow::Result<ExitStatus> {
    // It ends with this process, even if that is killed.
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "--"])
        .args(command)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .spawn()
        .context("starting setpriv, of the package util-linux")?;
    let command = Pid::from_child(&child);
    let handle = signals.handle();
    let forward = thread::spawn(move || {
        for signal in signals.forever() {
            if signal != SIGINT {
                end(command);
            }
        }
    });
    let status = child.wait();
    handle.close();
    let _ = forward.join();
    Ok(status?)
}

/// Ends a process and its descendants: SIGTERM, then SIGKILL.
fn end(process: Pid) {
    let family: Vec<_> = family(process).into_iter().filter_map(open).collect();
    let send = |signal| {
        for member in &family {
            let _ = pidfd_send_signal(member, signal);
        }
    };
    send(Signal::TERM);
    let until = Instant::now() + GRACE;
    let ended = |member: &OwnedFd| {
        let left = until.saturating_duration_since(Instant::now());
        let mut watched = [PollFd::new(member, PollFlags::IN)];
        poll(&mut watched, Timespec::try_from(left).ok().as_ref()).is_ok_and(|ready| ready > 0)
    };
    if !family.iter().all(ended) {
        send(Signal::KILL);
    }
}

fn open(process: Pid) -> Option<OwnedFd> {
    pidfd_open(process, PidfdFlags::empty()).ok()
}

/// The process and its descendants (proc(5), `children`).
fn family(process: Pid) -> Vec<Pid> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(parent) = all.get(next) {
        next += 1;
        let id = parent.as_raw_pid();
        let threads = fs::read_dir(format!("/proc/{id}/task"))
            .into_iter()
            .flatten();
        let children = threads
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let children: String = children.collect();
        let pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        all.extend(pids.filter_map(Pid::from_raw));
    }
    all
}
