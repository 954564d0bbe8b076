//! Siege's twelve figures.

use serde::{Deserialize, Serialize};

use crate::format::count;

/// The figures that siege prints, by its definitions (siege 4, `src/browser.c`, `src/data.c`), for requests:
/// a page and each of its resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Answered requests, except those with 408 or 5xx.
    pub transactions: u64,
    /// Their share of all finished requests, in percent.
    pub availability_pct: f64,
    /// From the start of the first user to the end of the last one, in seconds.
    pub elapsed_s: f64,
    /// Bodies of answers, in MB of 2^20 bytes.
    pub data_mb: f64,
    /// Mean time of answered requests, including connection and handshake, per transaction, in seconds.
    pub response_s: f64,
    /// Transactions per second.
    pub rate_per_s: f64,
    /// Data per second, in MB of 2^20 bytes.
    pub throughput_mb_s: f64,
    /// Time of all answered requests divided by the elapsed time: mean concurrent requests.
    pub concurrency: f64,
    /// Answers with a status below 400, or 401 or 407.
    pub ok: u64,
    /// Requests without an answer, or with 408 or 5xx.
    pub failed: u64,
    /// The slowest answer, in seconds.
    pub longest_s: f64,
    /// The fastest answer, in seconds.
    pub shortest_s: f64,
}

impl Figures {
    /// Each with siege's name and its unit.
    pub fn rows(&self) -> [[String; 2]; 12] {
        let two = |value: f64, unit: &str| format!("{value:.2} {unit}");
        [
            [
                "Transactions",
                &format!("{} hits", count(self.transactions)),
            ],
            ["Availability", &two(self.availability_pct, "%")],
            ["Elapsed time", &two(self.elapsed_s, "s")],
            ["Data transferred", &two(self.data_mb, "MB")],
            ["Response time", &seconds(self.response_s)],
            ["Transaction rate", &two(self.rate_per_s, "/s")],
            ["Throughput", &two(self.throughput_mb_s, "MB/s")],
            ["Concurrency", &format!("{:.2}", self.concurrency)],
            ["Successful transactions", &count(self.ok)],
            ["Failed transactions", &count(self.failed)],
            ["Longest transaction", &seconds(self.longest_s)],
            ["Shortest transaction", &seconds(self.shortest_s)],
        ]
        .map(|row| row.map(str::to_owned))
    }
}

/// Siege's two decimals are too few for a key in a file.
fn seconds(seconds: f64) -> String {
    format!("{seconds:.4} s")
}
