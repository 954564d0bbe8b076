use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{PATIENCE, Run, until};

/// A program in the background with its output in a file; it ends on drop.
/// If a test fails, the end of the output is printed.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `run`, which writes to `<name>.log` in `folder`.
    pub fn start(name: &str, folder: &Path, run: Run) -> Self {
        let log = folder.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("open the log");
        let child = run
            .into_command()
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("share the log"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("start {name}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its complete output, including that of an earlier process with the same name and folder.
    pub fn log(&self) -> String {
        fs::read(&self.log).map_or_else(
            |_| String::new(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().expect("wait for a child").is_none()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal a child");
    }

    /// Waits until it has written `text`; panics if it ends before.
    pub fn wait_for(&mut self, text: &str) {
        let what = format!("{}: {text:?} in its output", self.name);
        until(&what, PATIENCE, || {
            if self.log().contains(text) {
                return Some(());
            }
            assert!(self.running(), "{what}: it has ended\n{}", self.log());
            None
        });
    }

    /// Ends it with SIGTERM, and waits.
    pub fn stop(&mut self) -> ExitStatus {
        if let Some(status) = self.child.try_wait().expect("wait for a child") {
            return status;
        }
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.wait();
    }

    /// Sends a signal to the first process of a [`Rig::family`](crate::Rig::family).
    pub fn signal_first(&self, signal: Signal) {
        let first = Pid::from_raw(self.children()[0].cast_signed()).expect("a process");
        kill_process(first, signal).expect("signal a family");
    }

    /// Its running child processes.
    pub fn children(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).expect("the threads");
        tasks
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
            .flat_map(|line| {
                line.split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let what = format!("the end of {}", self.name);
        until(&what, PATIENCE, || {
            child.try_wait().expect("wait for a child")
        })
    }
}

/// Whether a process runs: whether any of its threads does. The first thread of a killed process may end well before
/// others, which keep its memory and its sockets. An ended orphan may remain a zombie, because containers may have no
/// process that reaps it.
pub fn running(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.is_ok_and(|threads| {
        threads.filter_map(Result::ok).any(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
        })
    })
}

/// The command lines of processes with a working folder at or below `folder`.
pub fn running_in(folder: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("the processes");
    let inside = processes.filter_map(Result::ok).filter(|process| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
    });
    inside
        .filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok())
        .collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Before the end, which services of the process log as well.
        let log = std::thread::panicking().then(|| self.log());
        if self.running() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
        if let Some(log) = log {
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(60)..].join("\n");
            eprintln!("--- the end of {}'s output\n{last}\n---", self.name);
        }
    }
}
