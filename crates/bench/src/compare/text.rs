//! A comparison as a table.

use std::fmt;

use super::{Bound, CompareReport};
use crate::format::{count, lines, micros, rate, table, three};

impl fmt::Display for CompareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.title))?;
        writeln!(f, "{}", self.head)?;
        let ended = if self.interrupted {
            "; interrupted in the next one"
        } else {
            ""
        };
        match self.rounds {
            1 => writeln!(f, "one round{ended}\n")?,
            rounds => writeln!(f, "medians of {rounds} rounds, taking turns{ended}\n")?,
        }
        let variants = self.variants.iter().map(|series| {
            let first = &self.variants[0];
            [
                series.name.clone(),
                rate(series.per_second),
                match series.per_second / first.per_second {
                    ratio if ratio.is_finite() => three(ratio),
                    _ => "-".to_owned(),
                },
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
            let bound = figure.goal.bound;
            let show = |value: Option<f64>| match value {
                Some(value) => format!("{}{}", three(value), unit(bound)),
                None => "-".to_owned(),
            };
            [
                format!(
                    "{} against {}: {}",
                    figure.goal.of,
                    figure.goal.against,
                    bound.subject()
                ),
                show(figure.value),
                format!("{} .. {}", show(figure.min), show(figure.max)),
                goal(bound),
                if figure.reached { "reached" } else { "MISSED" }.to_owned(),
            ]
        });
        writeln!(
            f,
            "{}",
            table(["figure", "measured", "rounds", "goal", "result"], figures)
        )
    }
}

fn unit(bound: Bound) -> &'static str {
    match bound {
        Bound::AddedMedianAtMost(_) => " us",
        _ => "",
    }
}

fn goal(bound: Bound) -> String {
    match bound {
        Bound::RateRatioAtLeast(least) => format!(">= {}", three(least)),
        Bound::RateRatioWithin(share) => format!("1 +- {}", three(share)),
        Bound::TimeRatioAtMost(most)
        | Bound::ServerTimeRatioAtMost(most)
        | Bound::AddedMedianAtMost(most)
        | Bound::TailAtMost(most) => format!("<= {}{}", three(most), unit(bound)),
    }
}
