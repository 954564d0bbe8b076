//! The scaling measurement as a table.

use std::fmt;

use super::{ScaleEvent, ScaleReport, ScaleStep};
use crate::format::{count, lines, rate, table, three};
use crate::report::cells;

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.title))?;
        writeln!(f, "{}\n", self.head)?;
        writeln!(
            f,
            "{}\n",
            table(STEP, self.steps.iter().map(ScaleStep::cells))
        )?;
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
            let published_comparison = table(
                PUBLISHED_COMPARISON,
                self.steps
                    .iter()
                    .filter_map(ScaleStep::published_comparison),
            );
            writeln!(
                f,
                "{}\n\n{published_comparison}\n",
                lines(&format!("Beside the published SmartCard-HSMs, {kind}"))
            )?;
        }
        let heading = "Published: SmartCard-HSM cluster (other hardware, for reference)";
        let rows = self.reference.iter().map(cells::published);
        let heading = lines(heading);
        writeln!(f, "{heading}\n\n{}", table(cells::PUBLISHED, rows))?;
        cells::remarks(&self.reference).try_for_each(|remark| writeln!(f, "{}", lines(&remark)))
    }
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
