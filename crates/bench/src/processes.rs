//! CPU time and memory of processes, from /proc (proc(5)).

use std::collections::BTreeMap;
use std::time::Duration;

use procfs::process::{Process as Proc, all_processes};
use serde::{Deserialize, Serialize};

/// The costs of one process during a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its command line, shortened.
    pub name: String,
    /// User and system time, in seconds.
    pub cpu_s: f64,
    /// The same as a share of the measurement's time: 200 is two cores.
    pub cpu_percent: f64,
    /// Its peak of resident memory in bytes: since the measurement's start if the count can be reset (clear_refs),
    /// else since the process's start.
    pub peak_memory_bytes: u64,
}

/// The interval of searches for new descendants.
const SEARCH: Duration = Duration::from_millis(500);

/// The accounts of this process and the named ones, with all descendants.
pub struct Accounts {
    tree: ProcessTree,
    open: BTreeMap<u32, Account>,
    searched: Duration,
}

struct Account {
    name: String,
    /// CPU ticks of the measurement up to the last pause.
    ticks: u64,
    /// The process's total when the round began.
    base: u64,
    /// The process's total when last read.
    seen: u64,
    peak: u64,
}

impl Accounts {
    /// Opens accounts for this process and `roots`.
    pub fn open(roots: &[u32]) -> Self {
        let mut this = Self {
            tree: ProcessTree::of(roots),
            open: BTreeMap::new(),
            searched: Duration::ZERO,
        };
        this.search();
        for pid in this.open.keys() {
            // If it cannot be reset, the peak is that of the whole process.
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
        this
    }

    /// Starts a round.
    pub fn resume(&mut self) {
        self.searched = Duration::ZERO;
        self.search();
        self.read_usage();
        for account in self.open.values_mut() {
            account.base = account.seen;
        }
    }

    /// Reads the accounts, `elapsed` after the start of the round.
    pub fn sample(&mut self, elapsed: Duration) {
        if elapsed.saturating_sub(self.searched) >= SEARCH {
            self.searched = elapsed;
            self.search();
            self.read_usage();
        }
    }

    /// Ends the round.
    pub fn pause(&mut self) {
        self.read_usage();
        for account in self.open.values_mut() {
            account.ticks += account.seen - account.base;
            account.base = account.seen;
        }
    }

    /// The results, this process first.
    pub fn close(self, elapsed: Duration) -> Vec<Process> {
        let second = procfs::ticks_per_second() as f64;
        let own = std::process::id();
        let mut bill: Vec<Process> = self
            .open
            .into_iter()
            .map(|(pid, account)| {
                let cpu_s = account.ticks as f64 / second;
                Process {
                    pid,
                    name: account.name,
                    cpu_s,
                    cpu_percent: if elapsed.is_zero() {
                        0.0
                    } else {
                        100.0 * cpu_s / elapsed.as_secs_f64()
                    },
                    peak_memory_bytes: account.peak,
                }
            })
            .collect();
        bill.sort_by_key(|process| (process.pid != own, process.pid));
        bill
    }

    /// Opens an account for each new process.
    fn search(&mut self) {
        for pid in self.tree.members() {
            self.open.entry(pid).or_insert_with(|| Account::new(pid));
        }
    }

    fn read_usage(&mut self) {
        for (&pid, account) in &mut self.open {
            // An ended process keeps its last values.
            let Some((ticks, peak)) = usage(pid) else {
                continue;
            };
            // The process id may have been reused.
            account.seen = account.seen.max(ticks);
            account.peak = account.peak.max(peak);
        }
    }
}

impl Account {
    /// `base` is 0 for a process that appears during a round: all its work belongs to the round.
    fn new(pid: u32) -> Self {
        Self {
            name: name(pid),
            ticks: 0,
            base: 0,
            seen: 0,
            peak: 0,
        }
    }
}

/// This process and others, with all descendants.
pub struct ProcessTree {
    roots: Vec<u32>,
}

impl ProcessTree {
    /// Of this process and `roots`.
    pub fn of(roots: &[u32]) -> Self {
        let mut tree = Self {
            roots: vec![std::process::id()],
        };
        tree.adopt(roots);
        tree
    }

    /// Adds processes.
    pub fn adopt(&mut self, roots: &[u32]) {
        for &pid in roots {
            if !self.roots.contains(&pid) {
                self.roots.push(pid);
            }
        }
    }

    /// All running processes.
    pub fn members(&self) -> Vec<u32> {
        let parents: BTreeMap<u32, u32> = all_processes()
            .into_iter()
            .flatten()
            .filter_map(|process| {
                let stat = process.ok()?.stat().ok()?;
                Some((stat.pid.cast_unsigned(), stat.ppid.cast_unsigned()))
            })
            .collect();
        let belongs = |pid: &u32| {
            let mut line = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
            line.any(|pid| self.roots.contains(&pid))
        };
        parents.keys().copied().filter(belongs).collect()
    }
}

/// The start of a process, in clock ticks after boot, and its resident memory in bytes.
pub fn resident(pid: u32) -> Option<(u64, u64)> {
    let stat = Proc::new(pid.cast_signed()).ok()?.stat().ok()?;
    let pages = stat.rss;
    // A zombie has no memory.
    (pages > 0).then(|| (stat.starttime, pages * procfs::page_size()))
}

/// CPU ticks so far, and the peak of resident memory in bytes.
fn usage(pid: u32) -> Option<(u64, u64)> {
    let process = Proc::new(pid.cast_signed()).ok()?;
    let stat = process.stat().ok()?;
    // A process that ends has no memory to report.
    let peak = process
        .status()
        .ok()
        .and_then(|status| status.vmhwm)
        .unwrap_or(0);
    Some((stat.utime + stat.stime, peak * 1024))
}

/// The program's file name and its first two arguments.
pub fn name(pid: u32) -> String {
    let words = Proc::new(pid.cast_signed())
        .and_then(|process| process.cmdline())
        .unwrap_or_default();
    let program = words
        .first()
        .map(|path| path.rsplit('/').next().unwrap_or(path));
    let arguments = words.iter().skip(1).take(2).map(String::as_str);
    let name: Vec<&str> = program.into_iter().chain(arguments).collect();
    name.join(" ").chars().take(40).collect()
}
