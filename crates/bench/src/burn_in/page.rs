//! The burn-in as a page of charts and tables.

use super::text::{MEMORY, TOKEN};
use super::{BurnInReport, ProcessMemory, TokenCounts};
use crate::format::count;
use crate::report::cells;
use crate::report::chart::{Chart, ChartSeries, Ink, Style};
use crate::report::page::Page;

/// Processes in the chart of memory: those with the most.
const DRAWN: [Ink; 4] = [Ink::Measured, Ink::Published, Ink::PublishedToo, Ink::Event];

impl BurnInReport {
    /// One self-contained HTML file; charts are inline SVG.
    pub fn html(&self) -> String {
        let mut page = Page::new(&self.title(), &self.head.when_and_where());
        page.headline(&self.figures());
        let about = format!(
            "Tests for each second, from {} with {} callers.",
            self.target, self.callers
        );
        page.section("Rate", &about);
        page.chart(&self.rate());
        page.section(
            "Tokens",
            "Signatures of each token, for each second of the run.",
        );
        page.chart(&self.by_token());
        page.table(TOKEN, self.tokens.iter().map(TokenCounts::cells));
        self.tell_failures(&mut page);
        page.section(
            "Memory",
            "Resident memory of every process involved. The slope is a line of least squares \
             without the first tenth of the time, with its uncertainty (95 %).",
        );
        page.chart(&self.memory_chart());
        page.table(MEMORY, self.memory.iter().map(ProcessMemory::cells));
        if !self.reference.is_empty() {
            let remarks: Vec<String> = cells::remarks(&self.reference).collect();
            let about = format!("SmartCard-HSMs, other hardware. {}", remarks.join(" "));
            page.section("Published", &about);
            page.table(
                cells::PUBLISHED,
                self.reference.iter().map(cells::published),
            );
        }
        page.finish()
    }

    fn rate(&self) -> Chart<'static> {
        let points = self
            .course
            .iter()
            .map(|point| (point.at_s, point.per_second));
        Chart {
            x: "seconds",
            y: "tests per second",
            lines: vec![ChartSeries::new(
                "measured",
                Ink::Measured,
                points.collect(),
                Style::Plain,
            )],
            marks: Vec::new(),
            whole_x: false,
        }
    }

    fn by_token(&self) -> Chart<'static> {
        let rates = self.tokens.iter().map(|token| token.per_second);
        let numbered = (1_u32..).map(f64::from).zip(rates);
        Chart {
            x: "token, in the order of the table",
            y: "signatures per second",
            lines: vec![ChartSeries::new(
                "measured",
                Ink::Measured,
                numbered.collect(),
                Style::Dots,
            )],
            marks: Vec::new(),
            whole_x: true,
        }
    }

    fn memory_chart(&self) -> Chart<'static> {
        let mut processes: Vec<&ProcessMemory> = self.memory.iter().collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.peak_bytes));
        let lines = processes.into_iter().zip(DRAWN).map(|(process, ink)| {
            let megabytes = process.samples.iter().map(|(at, bytes)| (*at, bytes / 1e6));
            let name = format!("{} ({})", process.name, process.pid);
            ChartSeries::new(&name, ink, megabytes.collect(), Style::Plain)
        });
        Chart {
            x: "seconds",
            y: "MB",
            lines: lines.collect(),
            marks: Vec::new(),
            whole_x: false,
        }
    }

    fn tell_failures(&self, page: &mut Page) {
        if self.failures.is_empty() {
            return;
        }
        page.section("What went wrong", "By kind, and the first few of each.");
        let rows = self.failures.iter().flat_map(|failure| {
            failure.examples.iter().map(|example| {
                [
                    failure.kind.clone(),
                    count(failure.count),
                    example.token.clone(),
                    example.message.clone(),
                ]
            })
        });
        page.table(["kind", "times", "token", "for example"], rows);
    }
}
