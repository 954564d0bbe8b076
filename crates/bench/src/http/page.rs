//! The measurement as a page.

use super::Report;
use crate::format::{count, micros, rate};
use crate::report::cells;
use crate::report::chart::{Chart, Ink, Line, Style};
use crate::report::page::Page;

impl Report {
    /// One HTML file that needs no other: the chart is inline SVG.
    pub fn html(&self) -> String {
        let found = &self.measurement;
        let mut page = Page::new(&self.what(), &self.head.when_and_where());
        page.headline(&[
            ("requests", rate(found.per_second)),
            ("items", rate(self.items_per_second)),
            ("latency, p50", cells::latency(found.latency_us, |l| l.p50)),
            ("latency, p99", cells::latency(found.latency_us, |l| l.p99)),
            ("failed", count(found.failed)),
        ]);
        page.section("Throughput", &format!("Requests per second, {}.", self.url));
        page.chart(&self.course());
        if let Some(l) = &found.latency_us {
            page.section("Latency", "Of requests that were answered with 200.");
            let row = [l.min, l.mean, l.stddev, l.p50, l.p90, l.p99, l.p999, l.max];
            let heads = ["min", "mean", "stddev", "p50", "p90", "p99", "p99.9", "max"];
            page.table(heads, [row.map(micros)]);
        }
        if !found.faults.is_empty() {
            page.section("Errors", "By status.");
            let rows = found.faults.iter();
            page.table(
                ["error", "requests"],
                rows.map(|fault| [fault.message.clone(), count(fault.count)]),
            );
        }
        page.section(
            "Cost",
            "CPU and memory of the client and of what it was told of.",
        );
        page.table(cells::PROCESS, found.processes.iter().map(cells::process));
        page.finish()
    }

    fn course(&self) -> Chart<'static> {
        let points = self.measurement.timeline.iter();
        Chart {
            x: "seconds",
            y: "requests per second",
            lines: vec![Line {
                name: "answered".to_owned(),
                ink: Ink::Measured,
                points: points.map(|point| (point.at_s, point.per_second)).collect(),
                style: Style::Plain,
            }],
            marks: Vec::new(),
            whole_x: false,
        }
    }
}
