//! A comparison as a table.

use std::fmt;

use super::{Bound, Report};
use crate::format::{count, lines, micros, rate, table, three};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.title))?;
        writeln!(f, "{}", self.head)?;
        writeln!(f, "medians of {} rounds, taking turns\n", self.rounds)?;
        let variants = self.variants.iter().map(|series| {
            let first = &self.variants[0];
            [
                series.name.clone(),
                rate(series.per_second),
                three(series.per_second / first.per_second),
                series.median_us.map_or_else(|| "-".to_owned(), micros),
                count(series.failed),
            ]
        });
        writeln!(
            f,
            "{}\n",
            table(["variant", "rate", "ratio", "p50", "failed"], variants)
        )?;
        if self.figures.is_empty() {
            return Ok(());
        }
        let figures = self.figures.iter().map(|figure| {
            let show = |value: Option<f64>| match (value, figure.goal.bound) {
                (None, _) => "-".to_owned(),
                (Some(value), Bound::RateRatioAtLeast(_)) => three(value),
                (Some(value), Bound::AddedMedianAtMost(_)) => format!("{} us", three(value)),
            };
            let (sign, bound) = match figure.goal.bound {
                Bound::RateRatioAtLeast(bound) => (">=", bound),
                Bound::AddedMedianAtMost(bound) => ("<=", bound),
            };
            [
                format!("{} against {}", figure.goal.of, figure.goal.against),
                show(figure.value),
                format!("{} .. {}", show(figure.min), show(figure.max)),
                format!("{sign} {}", show(Some(bound))),
                if figure.reached { "reached" } else { "MISSED" }.to_owned(),
            ]
        });
        writeln!(
            f,
            "{}",
            table(["figure", "measured", "rounds", "goal", ""], figures)
        )
    }
}
