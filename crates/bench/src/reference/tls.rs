//! The published web cluster: siege over HTTPS, with keys in SmartCard-HSMs or in a file.

use serde::{Deserialize, Serialize};

use crate::tls::Figures;

/// A published run of siege. Each figure is the best of three runs.
///
/// Source: R. van Elst, raymii.org, "Nitrokey HSM/SmartCard-HSM and Raspberry Pi web cluster" (2016-08-01) and
/// "Use the Nitrokey HSM or SmartCard-HSM with sc-hsm-embedded, mod_nss and Apache" (2016-07-15),
/// `crates/bench/reference/tls-siege.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TlsRow {
    /// `web-cluster` or `read-only-module`.
    pub setup: String,
    /// Its host.
    pub host: String,
    /// The kind of key, `rsa-2048`.
    pub key: String,
    /// SmartCard-HSMs; 0 for a key in a file.
    pub hsms: u32,
    /// The PKCS#11 module.
    pub module: String,
    /// `static` (a small text) or `wordpress`.
    pub page: String,
    /// Concurrent users.
    pub users: u32,
    /// The maximum thinking time, in seconds; 0 for a burst.
    pub think_s: f64,
    /// The output of siege.
    pub figures: Figures,
}

/// All rows of `tls-siege.csv`.
pub fn siege_table() -> Vec<TlsRow> {
    let table = include_str!("../../reference/tls-siege.csv");
    let read = |line| {
        let cells: [String; 21] = cells(line).try_into().ok()?;
        row(&cells)
    };
    table.lines().skip(1).filter_map(read).collect()
}

fn row(cells: &[String; 21]) -> Option<TlsRow> {
    let number = |at: usize| cells[at].parse::<f64>().ok();
    let count = |at: usize| cells[at].parse::<u64>().ok();
    Some(TlsRow {
        setup: cells[0].clone(),
        host: cells[1].clone(),
        key: cells[2].clone(),
        hsms: cells[3].parse().ok()?,
        module: cells[4].clone(),
        page: cells[5].clone(),
        users: cells[6].parse().ok()?,
        think_s: number(7)?,
        figures: Figures {
            transactions: count(9)?,
            availability_pct: number(10)?,
            elapsed_s: number(11)?,
            data_mb: number(12)?,
            response_s: number(13)?,
            rate_per_s: number(14)?,
            throughput_mb_s: number(15)?,
            concurrency: number(16)?,
            ok: count(17)?,
            failed: count(18)?,
            longest_s: number(19)?,
            shortest_s: number(20)?,
        },
    })
}

/// The cells of a line; a comma in quotes belongs to its cell.
fn cells(line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let (mut cell, mut quoted) = (String::new(), false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_row_is_read() {
        let rows = siege_table();
        assert_eq!(rows.len(), 153);
        assert_eq!(
            rows[0].host,
            "Raspberry Pi 3 per HSM, haproxy in tcp mode in front"
        );
        let lost: Vec<_> = rows.iter().filter(|row| row.figures.failed > 0).collect();
        assert_eq!(lost.len(), 5);
        let worst = lost.iter().map(|row| row.figures.availability_pct);
        assert!((worst.fold(100.0, f64::min) - 56.31).abs() < 1e-9);
        let burst = |row: &&TlsRow| (&*row.key, row.users, row.hsms) == ("rsa-2048", 60, 1);
        let mut rates: Vec<f64> = rows
            .iter()
            .filter(burst)
            .map(|row| row.figures.rate_per_s)
            .collect();
        rates.sort_by(f64::total_cmp);
        assert_eq!(rates, [0.77, 1.43]);
    }
}
