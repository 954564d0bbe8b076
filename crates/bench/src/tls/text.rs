//! The measurement as a table.

use std::fmt;

use super::{RequestPace, Times, TlsReport};
use crate::Latency;
use crate::format::{count, lines, plain, rate, table};
use crate::report::cells;

impl TlsReport {
    /// The load in a line.
    pub(super) fn what(&self) -> String {
        let pace = match self.pace {
            RequestPace::ThinkS(0.0) => "in a burst".to_owned(),
            RequestPace::ThinkS(time) => format!("who think up to {} s", plain(time)),
            RequestPace::PerSecond(hits) => format!("{} intended", rate(hits)),
        };
        let follow = if self.follow {
            ", with its resources"
        } else {
            ""
        };
        let resume = match self.resume {
            0.0 => "a full handshake for each hit".to_owned(),
            share => format!("{} % offer an earlier session", plain(100.0 * share)),
        };
        let users = match self.users {
            1 => "1 user".to_owned(),
            users => format!("{} users", count(users as u64)),
        };
        format!("{}{follow} by {users}, {pace}, {resume}", self.url)
    }

    /// Warnings before the figures.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.tls.verified {
            warnings.push(
                "NOT SECURE: the server's certificate was not checked; it may have been anybody."
                    .to_owned(),
            );
        }
        if self.unfinished > 0 {
            warnings.push(format!(
                "{} requests were under way at the end, and are in no figure.",
                count(self.unfinished)
            ));
        }
        if self.measurement.interrupted {
            warnings.push("Interrupted before its time.".to_owned());
        }
        warnings
    }
}

impl Times {
    /// The headings of [`Self::rows`].
    pub(super) const HEADS: [&'static str; 8] =
        ["", "count", "min", "mean", "p50", "p90", "p99", "max"];

    /// The durations.
    pub(super) fn rows(&self) -> [[String; 8]; 4] {
        let connects = self.full_handshakes + self.resumed_handshakes;
        [
            ("TCP connection", Some(connects), self.connect_us),
            (
                "full handshake",
                Some(self.full_handshakes),
                self.full_handshake_us,
            ),
            (
                "resumed handshake",
                Some(self.resumed_handshakes),
                self.resumed_handshake_us,
            ),
            ("whole request", None, self.request_us),
        ]
        .map(|(name, times, latency)| {
            let part = |part| cells::latency(latency, part);
            [
                name.to_owned(),
                times.map_or_else(String::new, count),
                part(|l: Latency| l.min),
                part(|l| l.mean),
                part(|l| l.p50),
                part(|l| l.p90),
                part(|l| l.p99),
                part(|l| l.max),
            ]
        })
    }
}

impl fmt::Display for TlsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.what()))?;
        writeln!(f, "{}", lines(&self.tls.to_string()))?;
        writeln!(f, "{}\n", self.head)?;
        for warning in self.warnings() {
            writeln!(f, "{}\n", lines(&warning))?;
        }
        for [name, value] in self.figures.rows() {
            writeln!(f, "{name:<24}{value:>16}")?;
        }
        writeln!(f, "\n{}\n", table(Times::HEADS, self.times.rows()))?;
        for fault in &self.measurement.faults {
            let text = format!("{} times: {}", count(fault.count), fault.message);
            writeln!(f, "{}", lines(&text))?;
        }
        let rows = self.measurement.processes.iter().map(cells::process);
        writeln!(f, "{}", table(cells::PROCESS, rows))
    }
}
