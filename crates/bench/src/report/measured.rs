//! Parts of every page of one measurement.

use super::cells;
use super::chart::{Chart, ChartSeries, Ink, Style};
use super::page::Page;
use crate::Measurement;
use crate::format::count;

/// The rate over time.
pub fn rate_over_time(found: &Measurement, y: &'static str) -> Chart<'static> {
    let points = found.timeline.iter();
    Chart {
        x: "seconds",
        y,
        lines: vec![ChartSeries {
            name: "answered".to_owned(),
            ink: Ink::Measured,
            points: points.map(|point| (point.at_s, point.per_second)).collect(),
            style: Style::Plain,
        }],
        marks: Vec::new(),
        whole_x: false,
    }
}

/// Errors, if any.
pub fn errors(found: &Measurement, page: &mut Page) {
    if found.faults.is_empty() {
        return;
    }
    page.section("Errors", "By what they say.");
    let rows = found.faults.iter();
    page.table(
        ["error", "times"],
        rows.map(|fault| [fault.message.clone(), count(fault.count)]),
    );
}

/// Costs of the processes.
pub fn costs(found: &Measurement, page: &mut Page) {
    page.section(
        "Cost",
        "CPU and memory of the client and of what it was told of.",
    );
    page.table(cells::PROCESS, found.processes.iter().map(cells::process));
}
