//! The scaling measurement as a table.

use std::fmt;

use super::{ScaleEvent, ScaleReport, ScaleStep};
use crate::format::{count, lines, rate, table, three};
use crate::report::cells;

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.title))?;
        writeln!(f, "{}\n", self.head)?;
        writeln!(f, "{}\n", self.table())?;
        if let Some(members) = self.interrupted_with() {
            writeln!(f, "interrupted with {members} members\n")?;
        }
        for event in &self.events {
            let ScaleEvent {
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
        if let Some(kind) = &self.published {
            writeln!(
                f,
                "{}",
                lines(&format!(
                    "published: as many SmartCard-HSMs with {kind} (other hardware)"
                ))
            )?;
        }
        Ok(())
    }
}

impl ScaleReport {
    /// The steps; with published rates, if any.
    fn table(&self) -> String {
        let steps = self.steps.iter();
        if self.published.is_none() {
            return table(STEP, steps.map(ScaleStep::cells));
        }
        let row = |step: &ScaleStep| {
            let published = step.published_per_second;
            with_published(step.cells(), published.map_or_else(|| "-".to_owned(), rate))
        };
        table(with_published(STEP, "published"), steps.map(row))
    }
}

/// Inserts a cell behind the speed-up.
fn with_published<T>(step: [T; 8], published: T) -> [T; 9] {
    let [
        members,
        rate,
        speed_up,
        efficiency,
        p50,
        p99,
        failed,
        verified,
    ] = step;
    [
        members, rate, speed_up, published, efficiency, p50, p99, failed, verified,
    ]
}

/// The columns of [`ScaleStep::cells`].
pub(super) const STEP: [&str; 8] = [
    "members",
    "rate",
    "speed-up",
    "efficiency",
    "p50",
    "p99",
    "failed",
    "verified",
];

/// The columns of [`ScaleStep::published_comparison`].
pub(super) const PUBLISHED_COMPARISON: [&str; 4] =
    ["members", "measured", "published", "of published"];

impl ScaleStep {
    /// The measurement, in the columns of [`STEP`].
    pub(super) fn cells(&self) -> [String; 8] {
        let m = &self.measurement;
        [
            self.members.to_string(),
            rate(m.per_second),
            three(self.speed_up),
            format!("{} %", three(100.0 * self.efficiency)),
            cells::latency(m.latency_us, |l| l.p50),
            cells::latency(m.latency_us, |l| l.p99),
            count(m.failed + m.wrong),
            count(m.verified),
        ]
    }

    /// The measured rate beside the published one, in the columns of [`PUBLISHED_COMPARISON`].
    pub(super) fn published_comparison(&self) -> Option<[String; 4]> {
        let published = self.published_per_second?;
        let measured = self.measurement.per_second;
        Some([
            self.members.to_string(),
            rate(measured),
            rate(published),
            format!("{} %", three(100.0 * measured / published)),
        ])
    }
}
