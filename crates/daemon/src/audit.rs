//! The audit trail: JSON lines that are only ever appended.
//!
//! A line for each administrative act, on disk before the act is answered; and, where
//! `[audit] keys` asks for it, one for each use of a key, written by a thread of its own so that no
//! signature waits for a disk.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use hsmux_token::{Error, Kind, Result};
use parking_lot::Mutex;
use serde::Serialize;

/// Lines that may wait for the disk.
const WAITING: usize = 64 << 10;

/// Who did it.
#[derive(Clone, Debug, Serialize)]
pub struct Who {
    /// The user id that the kernel vouches for.
    pub uid: u32,
    /// The process id.
    pub pid: i32,
    /// What the program calls itself.
    pub program: String,
}

/// One line.
#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    time: String,
    #[serde(flatten)]
    who: &'a Who,
    #[serde(flatten)]
    what: T,
    outcome: &'a str,
}

/// A use of a key.
#[derive(Serialize)]
pub struct KeyUse<'a> {
    /// `C_Sign`, `C_Decrypt`, ...
    pub call: &'a str,
    /// The key's name, 16 hexadecimal digits.
    pub key: &'a str,
    /// Its label, where it has one.
    pub label: Option<&'a str>,
    /// `CKM_ECDSA`, ...
    pub mechanism: Option<&'a str>,
    /// From the request to its answer.
    pub micros: u64,
}

/// What somebody may not do at all.
#[derive(Serialize)]
struct Refused {
    act: &'static str,
}

/// The trail.
pub struct Audit {
    path: PathBuf,
    file: Arc<Mutex<File>>,
    keys: AtomicBool,
    queue: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

impl Audit {
    /// Opens the trail (0600) for appending.
    pub fn open(path: &Path, keys: bool) -> Result<Self> {
        let file = Arc::new(Mutex::new(open(path)?));
        let own = Arc::clone(&file);
        let (queue, lines) = sync_channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&lost);
        let writer = thread::Builder::new()
            .name("hsmux-audit".into())
            .spawn(move || write(&own, &lines, &counted))
            .map_err(|e| failed(path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            keys: AtomicBool::new(keys),
            queue: Some(queue),
            lost,
            writer: Some(writer),
        })
    }

    /// Opens the file of that name again: a rotation of logs may have put a new one there.
    pub fn reopen(&self) -> Result<()> {
        let file = open(&self.path)?;
        *self.file.lock() = file;
        Ok(())
    }

    /// Switches the lines for each use of a key.
    pub fn set_keys(&self, keys: bool) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Whether each use of a key is a line.
    pub fn wants_keys(&self) -> bool {
        self.keys.load(Ordering::Relaxed)
    }

    /// An act that destroys is about to begin; on disk when this returns. On an error it must not.
    pub fn begin(&self, who: &Who, what: impl Serialize) -> Result<()> {
        self.write_down(&line(who, what, "begun"))
    }

    /// An administrative act and how it ended; on disk when this returns.
    pub fn act(&self, who: &Who, what: impl Serialize, outcome: &Result<(), String>) -> Result<()> {
        let outcome = outcome.as_ref().err().map_or("done", String::as_str);
        self.write_down(&line(who, what, outcome))
    }

    fn write_down(&self, line: &str) -> Result<()> {
        let mut file = self.file.lock();
        file.write_all(line.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|e| failed(&self.path, &e))
    }

    /// A use of a key. Never waits: a line that finds the queue full is counted, and the count
    /// becomes a line of its own.
    pub fn key_use(&self, who: &Who, what: &KeyUse<'_>, outcome: &str) {
        self.later(line(who, what, outcome));
    }

    /// Somebody who may not administer has tried to. Never waits.
    pub fn refused(&self, who: &Who, why: &str) {
        let what = Refused {
            act: "administration",
        };
        self.later(line(who, what, why));
    }

    fn later(&self, line: String) {
        let sent = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(line).is_ok());
        if !sent {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let file = options.open(path).map_err(|e| failed(path, &e))?;
    give_to_the_daemon(&file, path);
    Ok(file)
}

/// A trail that root begins, without a daemon, belongs to the daemon's user, as its folder does.
fn give_to_the_daemon(file: &File, path: &Path) {
    let folder = path.parent().and_then(|folder| folder.metadata().ok());
    if let (Some(folder), true) = (folder, rustix::process::geteuid().is_root()) {
        // Where it cannot be given away the daemon says so when it opens it.
        let _ = std::os::unix::fs::fchown(file, Some(folder.uid()), Some(folder.gid()));
    }
}

fn failed(path: &Path, why: &io::Error) -> Error {
    let message = format!("audit trail {}: {why}", path.display());
    Error::pool(Kind::Environment, message)
}

fn line(who: &Who, what: impl Serialize, outcome: &str) -> String {
    let line = Line {
        time: now(),
        who,
        what,
        outcome,
    };
    let mut text =
        serde_json::to_string(&line).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"));
    text.push('\n');
    text
}

fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// Writes what waits, as much as there is at once.
fn write(file: &Mutex<File>, lines: &Receiver<String>, lost: &AtomicU64) {
    let mut block = String::new();
    while let Ok(first) = lines.recv() {
        block.push_str(&first);
        while let Ok(line) = lines.try_recv() {
            block.push_str(&line);
            if block.len() > 1 << 20 {
                break;
            }
        }
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let _ = writeln!(block, "{{\"time\":\"{}\",\"lost_lines\":{missing}}}", now());
        }
        if let Err(error) = file.lock().write_all(block.as_bytes()) {
            // Keys stay in use without a trail. The pause keeps a full disk from filling the log.
            tracing::error!(%error, "the audit trail cannot be written; lines are lost");
            lost.fetch_add(block.lines().count() as u64, Ordering::Relaxed);
            thread::sleep(Duration::from_secs(1));
        }
        block.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of uses of keys are written in the background.
    fn until_it_has(path: &Path, lines: usize) {
        let end = std::time::Instant::now() + Duration::from_secs(120);
        while std::fs::read_to_string(path).unwrap().lines().count() < lines {
            assert!(std::time::Instant::now() < end, "never {lines} lines");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn acts_and_uses_are_lines_of_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let who = Who {
            uid: 7,
            pid: 42,
            program: "a \"program\"".into(),
        };
        let audit = Audit::open(&path, true).unwrap();
        let act = serde_json::json!({ "act": "park", "token": "hsm1" });
        audit.act(&who, &act, &Ok(())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        let what = KeyUse {
            call: "C_Sign",
            key: "00ff",
            label: Some("web"),
            mechanism: None,
            micros: 12,
        };
        audit.key_use(&who, &what, "done");
        let old = folder.path().join("audit.log.1");
        until_it_has(&path, 2);
        std::fs::rename(&path, &old).unwrap();
        audit.act(&who, &act, &Ok(())).unwrap();
        audit.reopen().unwrap();
        audit.act(&who, &act, &Ok(())).unwrap();
        drop(audit);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        let text = std::fs::read_to_string(&old).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["token"], "hsm1");
        assert_eq!(lines[1]["label"], "web");
        assert_eq!(lines[1]["uid"], 7);
        assert_eq!(lines[1]["outcome"], "done");
    }
}
