//! A worker process, from its parent's side: started, watched, ended, and never left a zombie.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hsmux_token::DirectConnection;
use hsmux_token::fork::Unshared;
use hsmux_token::sync::Mutex;
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Answer, Connection, PeerProcess, decode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Environment;
use super::direct::read_tally;
use super::handover::{self, Terms};

/// How long a worker that nobody needs may take to end: what it is doing may be a write to the
/// token. It ends itself after a shorter time, see [`super::worker`].
const RELEASED_WITHIN: Duration = Duration::from_secs(3);

/// How long the kernel may take to end a killed process that is not stuck in a driver.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// A child process with its control socket.
pub(super) struct Child {
    process: Mutex<std::process::Child>,
    pidfd: Unshared<OwnedFd>,
    control: Mutex<Option<Unshared<UnixStream>>>,
    /// Where it writes down what it has served directly: read without asking it, also when it has died.
    tally: OnceLock<File>,
}

impl Child {
    /// Starts `program role`, with a socket for its standard input and no standard output.
    pub fn spawn(program: &Path, role: &str, environment: &Environment) -> io::Result<Self> {
        let (control, far) = Unshared::pair()?;
        let mut process = environment
            .apply(&mut Command::new(program))
            .arg(role)
            .stdin(Stdio::from(OwnedFd::from(far.try_clone()?)))
            .stdout(Stdio::null())
            // Ctrl+C is for the parent, which ends its workers when their work is done.
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&process);
        let pidfd = Unshared::make(|| pidfd_open(pid, PidfdFlags::empty())).inspect_err(|_| {
            let _ = process.kill();
            let _ = process.wait();
        })?;
        Ok(Self {
            process: Mutex::new(process),
            pidfd,
            control: Mutex::new(Some(control)),
            tally: OnceLock::new(),
        })
    }

    /// The parent's end of the control socket, to talk over while it starts.
    pub fn control(&self) -> io::Result<Unshared<UnixStream>> {
        match &*self.control.lock() {
            Some(control) => Unshared::make(|| control.try_clone()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Kills it if it has not ended by itself, and says what became of it.
    pub fn end(&self) -> String {
        if !self.wait(Duration::ZERO) {
            self.kill();
            self.wait(KILLED_WITHIN);
        }
        self.fate()
    }

    /// Why it has ended, if it has said so.
    fn last_word(&self) -> Option<String> {
        let mut control = Connection::new(self.control().ok()?);
        // It has written all that it ever will.
        match decode(control.read(MAX_FRAME, Some(Instant::now())).ok()?).ok()? {
            Answer::Failed(error) => Some(error.to_string()),
            _ => None,
        }
    }

    /// Waits for it to end; whether it has.
    pub fn wait(&self, within: Duration) -> bool {
        let within = Timespec {
            tv_sec: within.as_secs().cast_signed(),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut ended, Some(&within))).is_ok_and(|ready| ready > 0)
    }
}

impl PeerProcess for Child {
    fn ended(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pidfd.as_fd())
    }

    fn process(&self) -> Option<u32> {
        Some(self.process.lock().id())
    }

    fn hand_over(&self, direct: &DirectConnection<'_>) -> io::Result<()> {
        let terms = Terms {
            version: direct.version,
            key: direct.key,
            timeout_us: u64::try_from(direct.timeout.as_micros()).unwrap_or(u64::MAX),
            number: direct.number,
            shared: direct.shared,
            home: direct.home,
        };
        let tally = if let Some(tally) = self.tally.get() {
            tally
        } else {
            let made = memfd_create("hsmux-tally", MemfdFlags::CLOEXEC)?;
            self.tally.get_or_init(|| made.into())
        };
        match &*self.control.lock() {
            Some(control) => handover::send_connection(control, direct.connection, tally, &terms),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn takes_connections(&self) -> bool {
        true
    }

    fn served_directly(&self) -> u64 {
        self.tally.get().map_or(0, read_tally)
    }

    fn release(&self) {
        self.control.lock().take();
    }

    fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    fn fate(&self) -> String {
        match self.process.lock().try_wait() {
            Ok(Some(status)) => self.last_word().unwrap_or_else(|| describe(status)),
            Ok(None) => "hangs in the kernel, and does not end though it was killed".into(),
            Err(error) => format!("ended, and its status cannot be read: {error}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.release();
        if !self.wait(RELEASED_WITHIN) {
            self.kill();
            self.wait(KILLED_WITHIN);
        }
        let _ = self.process.lock().try_wait();
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("died by signal {signal}{}", name(signal)),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => status.to_string(),
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
