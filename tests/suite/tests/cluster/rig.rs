//! A folder for a cluster, which `scripts/cluster.sh` makes of SoftHSM tokens.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hsmux_suite::{PATIENCE, Program, Run, built, running_in, source, until};
use tempfile::TempDir;

/// The folder that everything of the cluster is in.
pub struct Cluster(pub TempDir);

impl Cluster {
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        // WordPress leaves root.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).expect("for others");
        Self(folder)
    }

    /// The script, told what to do.
    pub fn script(&self, what: &str) -> Run {
        self.prepare(Run::new(script()).args(what))
    }

    /// The same with a command that is run in front of the hosts.
    pub fn run(&self, command: &str) -> Run {
        self.prepare(Run::new(script()).arg("run").arg(command))
    }

    fn prepare(&self, run: Run) -> Run {
        run.env(
            "HSMUX_BUILT",
            built(Program::Hsmux).parent().expect("a folder"),
        )
        .env("TMPDIR", self.0.path())
        .env("REPORTS", self.reports())
        .env("TOKENS", "softhsm")
        .limit(600)
    }

    /// Where it leaves what outlives it.
    pub fn reports(&self) -> PathBuf {
        self.0.path().join("reports")
    }

    /// Waits until none of its processes runs.
    pub fn has_ended(&self) {
        until("no process is left", PATIENCE, || {
            running_in(self.0.path()).is_empty().then_some(())
        });
    }

    /// Waits until nothing is left but reports.
    pub fn is_gone(&self) {
        self.has_ended();
        let left = fs::read_dir(self.0.path()).expect("the folder");
        let left: Vec<_> = left.map(|entry| entry.expect("an entry").path()).collect();
        let reports = self.reports();
        assert!(left.iter().all(|path| *path == reports), "{left:?}");
    }
}

pub fn script() -> PathBuf {
    source().join("scripts/cluster.sh")
}
