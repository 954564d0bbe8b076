//! A separate pcscd, which ends with this process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ReaderError;
use super::pcscd_folder::PcscdFolder;

/// The path in Debian's package `pcscd`, which is not in every user's PATH.
const PROGRAM: &str = "/usr/sbin/pcscd";

/// Starts pcscd and supervises it; see its comments.
const SUPERVISOR_SCRIPT: &str = include_str!("keep.sh");

/// A start is two shells and a few mounts: short, unless the machine is busy.
const START_WITHIN: Duration = Duration::from_secs(60);

/// An end that takes longer is a hang.
const END_WITHIN: Duration = Duration::from_secs(3);

/// A running pcscd, and the shell that ends it when this process dies.
pub(super) struct Pcscd {
    supervisor: Child,
    line: UnixStream,
    /// The process of pcscd itself.
    process: OwnedFd,
    /// The network namespace of vpcd, if it has one of its own.
    pub network: Option<Arc<OwnedFd>>,
    socket: PathBuf,
}

impl Pcscd {
    /// Starts pcscd with the readers of a folder without another pcscd.
    pub fn start(folder: &PcscdFolder) -> Result<Self, ReaderError> {
        if !Path::new(PROGRAM).exists() {
            return Err(ReaderError::missing(PROGRAM, "pcscd"));
        }
        let failed = |source| ReaderError::io("starting pcscd", source);
        let socket = folder.socket();
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)
            .map_err(|source| ReaderError::io(format!("binding {}", socket.display()), source))?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.log())
            .map_err(failed)?;
        let (line, far) = UnixStream::pair().map_err(failed)?;
        let mut command = if folder.isolated {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let supervisor = command
            .args(["-c", SUPERVISOR_SCRIPT, "keep.sh"])
            .arg(folder.path())
            .arg(PROGRAM)
            .arg(if folder.isolated {
                "isolated"
            } else {
                "shared"
            })
            .stdin(OwnedFd::from(listener))
            .stdout(OwnedFd::from(far))
            .stderr(Stdio::from(log))
            // Ctrl+C is handled by this process, which then ends pcscd.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Self::started(supervisor, line, folder)
    }

    fn started(
        mut supervisor: Child,
        line: UnixStream,
        folder: &PcscdFolder,
    ) -> Result<Self, ReaderError> {
        let process = server(&line).and_then(|id| {
            let namespace = || File::open(format!("/proc/{id}/ns/net"));
            let network = folder.isolated.then(namespace).transpose()?;
            let network = network.map(|file| Arc::new(OwnedFd::from(file)));
            let pid = Pid::from_raw(id).ok_or(std::io::ErrorKind::InvalidData)?;
            Ok((pidfd_open(pid, PidfdFlags::empty())?, network))
        });
        match process {
            Ok((process, network)) => Ok(Self {
                supervisor,
                line,
                process,
                network,
                socket: folder.socket(),
            }),
            Err(source) => {
                // The supervisor ends with this socket, and ends its children.
                drop(line);
                let _ = supervisor.wait();
                Err(ReaderError::io(
                    format!("starting pcscd (its log: {})", folder.log_text()),
                    source,
                ))
            }
        }
    }

    /// Kills it like a crash.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Whether it still runs.
    pub fn running(&self) -> bool {
        !self.ended_within(Duration::ZERO)
    }

    fn ended_within(&self, limit: Duration) -> bool {
        let limit = Timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut ended, Some(&limit))).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for Pcscd {
    fn drop(&mut self) {
        let _ = self.line.write_all(b"end\n");
        if !self.ended_within(END_WITHIN) {
            self.kill();
        }
        let _ = self.supervisor.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Reads the process id from the supervisor.
fn server(line: &UnixStream) -> std::io::Result<i32> {
    line.set_read_timeout(Some(START_WITHIN))?;
    let mut text = String::new();
    BufReader::new(line).read_line(&mut text)?;
    text.trim()
        .parse()
        .map_err(|_| std::io::Error::other("it did not start"))
}
