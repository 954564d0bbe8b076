//! The machine of a measurement, without which a rate means nothing.

use procfs::Current;
use serde::{Deserialize, Serialize};

/// Properties of a machine that affect figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Kernel name and release.
    pub kernel: String,
    /// Name and version of the distribution.
    pub system: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine; missing data are `unknown`.
    pub fn this() -> Self {
        let unknown = || "unknown".to_owned();
        let cpu = procfs::CpuInfo::current().ok();
        let cpu = cpu.and_then(|info| info.model_name(0).map(str::to_owned));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            cpu: cpu.unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: release.map_or_else(unknown, |release| format!("Linux {}", release.trim())),
            system: distribution().unwrap_or_else(unknown),
            memory_bytes: procfs::Meminfo::current().map_or(0, |info| info.mem_total),
        }
    }
}

/// PRETTY_NAME of os-release(5).
fn distribution() -> Option<String> {
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            cpu,
            cores,
            kernel,
            system,
            memory_bytes,
        } = self;
        let memory = crate::format::bytes(*memory_bytes);
        write!(
            f,
            "{cpu}, {cores} cores, {memory} memory, {system}, {kernel}"
        )
    }
}
