//! The measurement as a page.

use super::HttpReport;
use crate::Latency;
use crate::format::{count, rate};
use crate::report::cells;
use crate::report::measured::{costs, errors, rate_over_time};
use crate::report::page::Page;

impl HttpReport {
    /// One self-contained HTML file; the chart is inline SVG.
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
        page.chart(&rate_over_time(found, "requests per second"));
        if let Some(latency) = &found.latency_us {
            page.section("Latency", "Of requests that were answered with 200.");
            page.table(Latency::PARTS, [latency.parts()]);
        }
        errors(found, &mut page);
        costs(found, &mut page);
        page.finish()
    }
}
