//! The scaling measurement as a table.

use std::fmt;

use super::{Event, Report, Step};
use crate::format::{count, lines, micros, rate, table, three};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.title))?;
        writeln!(f, "{}\n", lines(&format!("on {}", self.machine)))?;
        let heads = [
            "members",
            "rate",
            "speed-up",
            "efficiency",
            "p50",
            "p99",
            "failed",
            "verified",
        ];
        writeln!(f, "{}\n", table(heads, self.steps.iter().map(Step::cells)))?;
        for event in &self.events {
            let Event {
                members,
                at_s,
                what,
            } = event;
            let at = three(*at_s);
            writeln!(
                f,
                "{}",
                lines(&format!("with {members} members, after {at} s: {what}"))
            )?;
        }
        let published = self.reference.iter().map(|row| {
            [
                row.key.clone(),
                row.hsms.to_string(),
                count(u64::from(row.signatures)),
                rate(row.per_second),
            ]
        });
        let heading = "Published: SmartCard-HSM cluster (other hardware, for reference)";
        writeln!(
            f,
            "{heading}\n\n{}",
            table(["key", "HSMs", "signatures", "rate"], published)
        )
    }
}

impl Step {
    /// Members, rate, speed-up, efficiency, p50, p99, failed, verified.
    pub(super) fn cells(&self) -> [String; 8] {
        let m = &self.measurement;
        let latency = |part: fn(crate::Latency) -> f64| {
            m.latency_us
                .map_or_else(|| "-".to_owned(), |latency| micros(part(latency)))
        };
        [
            self.members.to_string(),
            rate(m.per_second),
            three(self.speed_up),
            format!("{} %", three(100.0 * self.efficiency)),
            latency(|l| l.p50),
            latency(|l| l.p99),
            count(m.failed + m.wrong),
            count(m.verified),
        ]
    }
}
