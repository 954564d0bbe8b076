//! The memory of all involved processes over time.

use serde::{Deserialize, Serialize};

use crate::processes::{ProcessTree, name, resident};
use crate::series::Series;

/// The interval of searches for new processes, in seconds.
const SEARCH_S: f64 = 2.0;

/// The maximum number of records; those of the shortest lives go first.
const MOST: usize = 64;

/// The memory of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemorySamples {
    /// Its process id.
    pub pid: u32,
    /// Its start in clock ticks after boot, which distinguishes reused process ids (proc(5), stat).
    pub started: u64,
    /// Its command line, shortened.
    pub name: String,
    /// The maximum of all samples, in bytes.
    pub peak_bytes: u64,
    /// Resident memory in bytes, over the seconds of the run.
    pub series: Series,
}

/// Samples this process and others, with all their descendants.
pub struct Memory {
    tree: ProcessTree,
    /// The records of all processes so far.
    pub samples: Vec<MemorySamples>,
    searched_s: f64,
    alive: Vec<u32>,
}

impl Memory {
    /// Continues the records of earlier runs.
    pub fn resume(samples: Vec<MemorySamples>, roots: &[u32]) -> Self {
        Self {
            tree: ProcessTree::of(roots),
            samples,
            searched_s: f64::NEG_INFINITY,
            alive: Vec::new(),
        }
    }

    /// Adds processes: a restarted daemon has a new one.
    pub fn adopt(&mut self, roots: &[u32]) {
        self.tree.adopt(roots);
    }

    /// Samples every process, if it is time.
    pub fn sample(&mut self, at_s: f64) {
        if at_s - self.searched_s >= SEARCH_S {
            self.searched_s = at_s;
            self.alive = self.tree.members();
        }
        for &pid in &self.alive {
            if let Some((started, bytes)) = resident(pid) {
                record(&mut self.samples, pid, started).take(at_s, bytes);
            }
        }
        while self.samples.len() > MOST {
            let shortest = |samples: &(usize, &MemorySamples)| samples.1.series.span_s();
            let gone = self.samples.iter().enumerate();
            let gone = gone.filter(|(_, samples)| !self.alive.contains(&samples.pid));
            match gone.min_by(|a, b| shortest(a).total_cmp(&shortest(b))) {
                Some((at, _)) => drop(self.samples.remove(at)),
                None => return,
            }
        }
    }
}

fn record(samples: &mut Vec<MemorySamples>, pid: u32, started: u64) -> &mut MemorySamples {
    let known = samples
        .iter()
        .position(|samples| (samples.pid, samples.started) == (pid, started));
    let at = known.unwrap_or_else(|| {
        samples.push(MemorySamples {
            pid,
            started,
            name: name(pid),
            peak_bytes: 0,
            series: Series::default(),
        });
        samples.len() - 1
    });
    &mut samples[at]
}

impl MemorySamples {
    fn take(&mut self, at_s: f64, bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(bytes);
        self.series.push(at_s, bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_children_are_sampled() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        // A new process has its name shortly after its start.
        let name = format!("/proc/{}/cmdline", child.id());
        while std::fs::read(&name).unwrap().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut memory = Memory::resume(Vec::new(), &[]);
        for tick in 0..5 {
            memory.sample(f64::from(tick) / 10.0);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let own = std::process::id();
        let of = |pid| memory.samples.iter().find(|samples| samples.pid == pid);
        let (own, child) = (of(own).unwrap(), of(child.id()).unwrap());
        assert_eq!(own.series.points().len(), 5);
        assert!(own.peak_bytes > 100_000 && child.peak_bytes > 10_000);
        assert_eq!(child.name, "sleep 600");

        // A later run continues with the same process, and keeps the other one.
        let mut later = Memory::resume(memory.samples.clone(), &[]);
        later.sample(0.6);
        assert_eq!(later.samples.len(), memory.samples.len());
    }

    #[test]
    fn records_do_not_grow_without_end() {
        let old = |pid| MemorySamples {
            pid,
            started: 1,
            name: "old".into(),
            peak_bytes: 1,
            series: Series::default(),
        };
        let mut memory = Memory::resume((5_000_000..5_000_100).map(old).collect(), &[]);
        memory.sample(0.0);
        assert_eq!(memory.samples.len(), MOST);
        let own = std::process::id();
        assert!(memory.samples.iter().any(|samples| samples.pid == own));
    }
}
