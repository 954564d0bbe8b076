//! The runs as a page of charts and tables.

use super::ChurnReport;
use crate::format::{count, three};
use crate::report::chart::{Chart, ChartSeries, Ink, Style};
use crate::report::page::Page;

/// Colours of the ways, in their order.
const INKS: [Ink; 4] = [Ink::Ideal, Ink::PublishedToo, Ink::Text, Ink::Measured];

impl ChurnReport {
    /// One self-contained HTML file; the chart is inline SVG.
    pub fn html(&self) -> String {
        let mut page = Page::new("Keys come and go", &self.head.when_and_where());
        let found = || self.rows.iter().flat_map(|row| &row.found);
        let failed = found().map(|found| found.failed).sum();
        let mut headline = vec![("runs", self.rows.len().to_string())];
        headline.push(("failed", count(failed)));
        page.headline(&headline);
        page.section("Throughput, over that of a fresh one", &self.what());
        page.chart(&self.chart());
        let (heads, rows) = self.ratios();
        page.wide_table(&heads, rows);
        page.section("Each way", "Over all its runs.");
        page.table(Self::EACH, self.each());
        page.finish()
    }

    fn chart(&self) -> Chart<'static> {
        let published = self.rows.iter().filter_map(|row| {
            let ratio = row.published_ratio?;
            Some((f64::from(row.run.number), ratio))
        });
        let mut lines = vec![ChartSeries {
            name: "published".to_owned(),
            ink: Ink::Published,
            points: published.collect(),
            style: Style::Dots,
        }];
        for (at, (name, ink)) in self.ways.iter().zip(INKS.iter().cycle()).enumerate() {
            let points = self.rows.iter().filter_map(|row| {
                let found = row.found.get(at)?;
                Some((f64::from(row.run.number), found.ratio))
            });
            let points: Vec<_> = points.collect();
            let worst = points.iter().map(|point| point.1).fold(1.0, f64::min);
            lines.push(ChartSeries {
                name: format!("{name}, at least {}", three(worst)),
                ink: *ink,
                points,
                style: Style::Dots,
            });
        }
        Chart {
            x: "run",
            y: "of fresh",
            lines,
            marks: Vec::new(),
            whole_x: true,
        }
    }
}
