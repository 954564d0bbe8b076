//! Published figures of the systems that hsmux replaces, beside a measurement.
//! They come from other hardware: they show previous performance, not a ranking.

mod tls;

use serde::{Deserialize, Serialize};

pub use tls::{TlsRow, siege_table};

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
    /// Number of signatures.
    pub count: u32,
    /// Maximum, in milliseconds.
    pub max_ms: f64,
    /// Minimum, in milliseconds.
    pub min_ms: f64,
    /// Mean, in milliseconds.
    pub mean_ms: f64,
    /// Of the whole run, in milliseconds.
    pub total_ms: f64,
    /// CPU of the client, in percent.
    pub client_cpu_percent: f64,
    /// Memory of the client, in MB.
    pub client_memory_mb: f64,
    /// CPU of the vendor's daemon, if there was one.
    pub daemon_cpu_percent: Option<f64>,
    /// Memory of the vendor's daemon, if there was one, in MB.
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
    /// Number of signatures.
    pub signatures: u32,
    /// Of the whole run, in seconds.
    pub duration_s: f64,
    /// Signatures per second over the whole run, as published.
    pub per_second: f64,
    /// The error in the row, if its figures contradict each other.
    pub remark: Option<String>,
}

impl ScalingRow {
    /// The rate from signatures and duration; the published one is rounded, and may be wrong.
    pub fn computed_per_second(&self) -> f64 {
        f64::from(self.signatures) / self.duration_s
    }

    /// Published rates are rounded to one decimal, durations to a second; a greater difference is an error.
    fn remarked(mut self) -> Self {
        let computed = self.computed_per_second();
        if (self.per_second / computed - 1.0).abs() > 0.05 {
            self.remark = Some(format!(
                "contradicts itself: {} signatures in {} s are {computed:.1} per second, not {}",
                self.signatures, self.duration_s, self.per_second
            ));
        }
        self
    }
}

/// A published run of a threaded HTTP service over SoftHSM: AES-256-CBC with one key, 16 clients, half encryption and
/// half decryption, with key changes between runs. Source: `crates/bench/reference/softhsm-key-churn.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChurnRow {
    /// Its number, from 1.
    pub run: u32,
    /// Keys in the token, including the one in use.
    pub keys: usize,
    /// Whether the service was restarted before the run.
    pub restarted: bool,
    /// Requests per second.
    pub per_second: f64,
}

/// The published rows of a kind of key (`rsa-2048`) for a curve: one for each number of HSMs,
/// ascending, without contradictory ones.
pub fn curve<'a>(rows: &'a [ScalingRow], kind: &str) -> Vec<&'a ScalingRow> {
    let mut curve: Vec<&ScalingRow> = rows
        .iter()
        .filter(|row| row.key == kind && row.remark.is_none())
        .collect();
    // The burn-in repeats the run with the same number of HSMs.
    curve.sort_by_key(|row| (row.hsms, row.signatures));
    curve.dedup_by_key(|row| row.hsms);
    curve
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

/// All rows of `softhsm-key-churn.csv`.
pub fn churn() -> Vec<ChurnRow> {
    let table = include_str!("../reference/softhsm-key-churn.csv");
    rows(table, |cells: [&str; 4]| {
        Some(ChurnRow {
            run: cells[0].parse().ok()?,
            keys: cells[1].parse().ok()?,
            restarted: cells[2] == "yes",
            per_second: cells[3].parse().ok()?,
        })
    })
}

/// The rows of [`scaling`] for a kind of key (`rsa-2048`); none without a kind.
pub fn scaling_of(kind: Option<&str>) -> Vec<ScalingRow> {
    let mut rows = scaling();
    rows.retain(|row| Some(&*row.key) == kind);
    rows
}

/// All rows of `smartcard-hsm-scaling.csv`.
pub fn scaling() -> Vec<ScalingRow> {
    let table = include_str!("../reference/smartcard-hsm-scaling.csv");
    rows(table, |cells: [&str; 5]| {
        let row = ScalingRow {
            key: cells[0].to_owned(),
            hsms: cells[1].parse().ok()?,
            signatures: cells[2].parse().ok()?,
            duration_s: cells[3].parse().ok()?,
            per_second: cells[4].parse().ok()?,
            remark: None,
        };
        Some(row.remarked())
    })
}

/// The rows below the heading. The tables have no quoted cells.
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
        let churn = churn();
        assert_eq!(churn.len(), 10);
        assert_eq!((churn[3].keys, churn[3].restarted), (52, true));
        assert_eq!((churn[6].keys, churn[6].per_second), (52, 3505.33));
    }

    /// 500,000 signatures in 12,185 s are 41.0 per second; the table has 32.8.
    #[test]
    fn the_row_that_contradicts_itself_is_marked_and_not_in_the_curve() {
        let rows = scaling();
        let marked: Vec<_> = rows.iter().filter(|row| row.remark.is_some()).collect();
        assert_eq!(marked.len(), 1);
        assert_eq!(
            (marked[0].signatures, marked[0].per_second),
            (500_000, 32.8)
        );
        assert!(
            marked[0]
                .remark
                .as_ref()
                .unwrap()
                .contains("are 41.0 per second")
        );
        let rates = |kind| {
            curve(&rows, kind)
                .iter()
                .map(|row| row.per_second)
                .collect::<Vec<_>>()
        };
        assert_eq!(rates("rsa-2048"), [1.5, 3.0, 6.1, 12.1]);
        assert_eq!(rates("ec-brainpoolP256r1"), [4.1, 8.4, 16.6, 32.9]);
        assert!(rates("rsa-1024").is_empty());
    }
}
