//! The measurement as a page.

use super::{Times, TlsReport};
use crate::Latency;
use crate::format::{count, rate};
use crate::report::cells;
use crate::report::measured::{costs, errors, rate_over_time};
use crate::report::page::Page;

impl TlsReport {
    /// One self-contained HTML file; the chart is inline SVG.
    pub fn html(&self) -> String {
        let (found, times) = (&self.measurement, &self.times);
        let mut page = Page::new(&self.what(), &self.head.when_and_where());
        page.headline(&[
            ("transactions", rate(self.figures.rate_per_s)),
            (
                "availability",
                format!("{:.2} %", self.figures.availability_pct),
            ),
            ("request, p50", cells::latency(times.request_us, |l| l.p50)),
            ("request, p99", cells::latency(times.request_us, |l| l.p99)),
            ("failed", count(self.figures.failed)),
        ]);
        let warnings = self.warnings().join(" ");
        page.section(
            "Siege's twelve figures",
            &format!("{}. {warnings}", self.tls),
        );
        page.table(["", "measured"], self.figures.rows());
        page.section("Throughput", "Hits per second.");
        page.chart(&rate_over_time(found, "hits per second"));
        page.section(
            "Times",
            "Handshakes apart from whole requests, from connecting to the last byte.",
        );
        page.table(Times::HEADS, times.rows());
        if let Some(latency) = &found.latency_us {
            let about = "A page with what was followed; at a given rate from the intended start.";
            page.section("Whole hits", about);
            page.table(Latency::PARTS, [latency.parts()]);
        }
        errors(found, &mut page);
        costs(found, &mut page);
        page.finish()
    }
}
