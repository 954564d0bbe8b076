//! Published figures of the systems that hsmux replaces, to stand beside a measurement.
//!
//! They were measured by others, on other hardware: they show what people had, not who is faster.

use serde::{Deserialize, Serialize};

/// A published run of a signing evaluation tool: ECDSA P-256 over 32 bytes on a cloud HSM.
///
/// Source: the README of a CloudHSM evaluation tool, `crates/bench/reference/signing-eval.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SigningRow {
    /// The service, and how many HSMs it had.
    pub provider: String,
    /// HSMs behind it.
    pub hsms: u32,
    /// Threads that signed.
    pub concurrency: u32,
    /// Signatures.
    pub count: u32,
    /// Longest, in milliseconds.
    pub max_ms: f64,
    /// Shortest, in milliseconds.
    pub min_ms: f64,
    /// Mean, in milliseconds.
    pub mean_ms: f64,
    /// Of the whole run, in milliseconds.
    pub total_ms: f64,
    /// CPU of the client, in percent.
    pub client_cpu_percent: f64,
    /// Memory of the client, in MB.
    pub client_memory_mb: f64,
    /// CPU of the vendor's daemon, where there was one.
    pub daemon_cpu_percent: Option<f64>,
    /// Memory of the vendor's daemon, where there was one, in MB.
    pub daemon_memory_mb: Option<f64>,
}

impl SigningRow {
    /// Signatures per second over the whole run.
    pub fn per_second(&self) -> f64 {
        f64::from(self.count) / self.total_ms * 1e3
    }
}

/// A published run of a cluster of SmartCard-HSMs with cloned keys.
///
/// Source: CardContact, "Building a SmartCard-HSM cluster" (2015-11-20),
/// `crates/bench/reference/smartcard-hsm-scaling.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingRow {
    /// The kind of key.
    pub key: String,
    /// SmartCard-HSMs.
    pub hsms: u32,
    /// Signatures.
    pub signatures: u32,
    /// Of the whole run, in seconds.
    pub duration_s: f64,
    /// Signatures per second over the whole run.
    pub per_second: f64,
}

/// All rows of `signing-eval.csv`.
pub fn signing() -> Vec<SigningRow> {
    let table = include_str!("../reference/signing-eval.csv");
    rows(table, |cells: [&str; 13]| {
        Some(SigningRow {
            provider: cells[1].to_owned(),
            hsms: cells[2].parse().ok()?,
            concurrency: cells[3].parse().ok()?,
            count: cells[4].parse().ok()?,
            max_ms: cells[5].parse().ok()?,
            min_ms: cells[6].parse().ok()?,
            mean_ms: cells[7].parse().ok()?,
            total_ms: cells[8].parse().ok()?,
            client_cpu_percent: cells[9].parse().ok()?,
            client_memory_mb: cells[10].parse().ok()?,
            daemon_cpu_percent: cells[11].parse().ok(),
            daemon_memory_mb: cells[12].parse().ok(),
        })
    })
}

/// All rows of `smartcard-hsm-scaling.csv`.
pub fn scaling() -> Vec<ScalingRow> {
    let table = include_str!("../reference/smartcard-hsm-scaling.csv");
    rows(table, |cells: [&str; 5]| {
        Some(ScalingRow {
            key: cells[0].to_owned(),
            hsms: cells[1].parse().ok()?,
            signatures: cells[2].parse().ok()?,
            duration_s: cells[3].parse().ok()?,
            per_second: cells[4].parse().ok()?,
        })
    })
}

/// The rows below the heading; the tables have no quoted cells.
fn rows<T, const N: usize>(table: &str, row: impl Fn([&str; N]) -> Option<T>) -> Vec<T> {
    let cells = |line: &str| -> Option<T> {
        let cells: Vec<&str> = line.split(',').collect();
        row(cells.try_into().ok()?)
    };
    table.lines().skip(1).filter_map(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_row_is_read() {
        let signing = signing();
        assert_eq!(signing.len(), 8);
        assert!((6.18..6.19).contains(&signing[0].per_second()));
        assert_eq!(signing[4].daemon_memory_mb, Some(2400.0));
        assert_eq!(signing[7].daemon_cpu_percent, None);
        let scaling = scaling();
        assert_eq!(scaling.len(), 10);
        assert_eq!((scaling[4].hsms, scaling[4].per_second), (8, 12.1));
    }
}
