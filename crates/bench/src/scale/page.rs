//! The scaling measurement as a page of charts and tables.

use super::text::{PUBLISHED_COMPARISON, STEP};
use super::{ScaleReport, ScaleStep};
use crate::format::{count, rate, three};
use crate::reference::{self, ScalingRow};
use crate::report::cells;
use crate::report::chart::{Chart, ChartSeries, Ink, Style};
use crate::report::page::Page;

impl ScaleReport {
    /// One self-contained HTML file; charts are inline SVG.
    pub fn html(&self) -> String {
        let mut page = Page::new(&self.title, &self.head.when_and_where());
        page.headline(&self.headline());
        page.section("Speed-up", "Rate over that of one member.");
        page.chart(&self.speed_up());
        page.section(
            "Throughput",
            "Signatures per second against members in service.",
        );
        page.chart(&self.throughput());
        page.table(STEP, self.steps.iter().map(ScaleStep::cells));
        if let Some(kind) = &self.published {
            let about =
                format!("As many SmartCard-HSMs with cloned {kind} keys, on other hardware.");
            page.section("Beside the published", &about);
            page.table(
                PUBLISHED_COMPARISON,
                self.steps
                    .iter()
                    .filter_map(ScaleStep::published_comparison),
            );
        }
        for step in &self.steps {
            self.rate_over_time(step, &mut page);
        }
        self.costs(&mut page);
        self.published(&mut page);
        page.finish()
    }

    fn headline(&self) -> Vec<(&'static str, String)> {
        let total = |of: fn(&ScaleStep) -> u64| count(self.steps.iter().map(of).sum());
        let mut headline = Vec::new();
        if let Some(last) = self.steps.last() {
            headline.push(("at the most members", rate(last.measurement.per_second)));
            headline.push((
                "efficiency there",
                format!("{} %", three(100.0 * last.efficiency)),
            ));
        }
        if let Some(members) = self.interrupted_with() {
            headline.push(("interrupted", format!("with {members} members")));
        }
        headline.push(("signatures", total(|step| step.measurement.ops)));
        headline.push(("verified", total(|step| step.measurement.verified)));
        headline.push((
            "failed or wrong",
            total(|step| step.measurement.failed + step.measurement.wrong),
        ));
        headline
    }

    fn speed_up(&self) -> Chart<'static> {
        let most = self.steps.last().map_or(1, |step| step.members) as f64;
        let mut lines = vec![ChartSeries {
            name: "linear".to_owned(),
            ink: Ink::Ideal,
            points: vec![(0.0, 0.0), (most, most)],
            style: Style::Dashed,
        }];
        lines.extend(self.published_line(|row, one| row.per_second / one.per_second));
        lines.push(self.measured(|step| step.speed_up));
        Chart {
            x: "members",
            y: "times one member",
            lines,
            marks: Vec::new(),
            whole_x: true,
        }
    }

    fn throughput(&self) -> Chart<'static> {
        let mut lines: Vec<_> = self
            .published_line(|row, _| row.per_second)
            .into_iter()
            .collect();
        lines.push(self.measured(|step| step.measurement.per_second));
        Chart {
            x: "members",
            y: "signatures per second",
            lines,
            marks: Vec::new(),
            whole_x: true,
        }
    }

    /// The published rates of the measured kind of key up to as many HSMs; `value` gets a row, and that of one HSM.
    fn published_line(&self, value: fn(&ScalingRow, &ScalingRow) -> f64) -> Option<ChartSeries> {
        let kind = self.published.as_ref()?;
        let most = self.steps.last()?.members;
        let rows = reference::curve(&self.reference, kind);
        let one = rows.first()?;
        let shown = rows.iter().filter(|row| row.hsms as usize <= most);
        let points = shown.map(|row| (f64::from(row.hsms), value(row, one)));
        let name = format!("published: SmartCard-HSM, {kind}");
        Some(ChartSeries::new(
            &name,
            Ink::Published,
            points.collect(),
            Style::Dots,
        ))
    }

    fn measured(&self, value: fn(&ScaleStep) -> f64) -> ChartSeries {
        ChartSeries {
            name: "measured".to_owned(),
            ink: Ink::Measured,
            points: self
                .steps
                .iter()
                .map(|step| (step.members as f64, value(step)))
                .collect(),
            style: Style::Dots,
        }
    }

    /// The rate over time, for steps with events.
    fn rate_over_time(&self, step: &ScaleStep, page: &mut Page) {
        let events = self
            .events
            .iter()
            .filter(|event| event.members == step.members);
        let marks: Vec<(f64, String)> = events
            .map(|event| (event.at_s, event.what.clone()))
            .collect();
        if marks.is_empty() {
            return;
        }
        let lost = step.measurement.failed + step.measurement.wrong;
        page.section(
            &format!("What happened with {} members", step.members),
            &format!(
                "{} signatures, {} failed or wrong.",
                count(step.measurement.ops),
                count(lost)
            ),
        );
        let timeline = &step.measurement.timeline;
        let start = timeline.first().map(|first| (0.0, first.per_second));
        let points = timeline.iter().map(|point| (point.at_s, point.per_second));
        let line = ChartSeries {
            name: "measured".to_owned(),
            ink: Ink::Measured,
            points: start.into_iter().chain(points).collect(),
            style: Style::Plain,
        };
        page.chart(&Chart {
            x: "seconds",
            y: "signatures per second",
            lines: vec![line],
            marks,
            whole_x: false,
        });
    }

    fn costs(&self, page: &mut Page) {
        let Some(last) = self.steps.last() else {
            return;
        };
        page.section(
            "Cost",
            &format!(
                "CPU and memory of every process, with {} members.",
                last.members
            ),
        );
        let rows = last.measurement.processes.iter().map(cells::process);
        page.table(cells::PROCESS, rows);
    }

    fn published(&self, page: &mut Page) {
        if self.reference.is_empty() {
            return;
        }
        let source = "CardContact, \u{201c}Building a SmartCard-HSM cluster\u{201d}, 2015-11-20.";
        let remarks: Vec<String> = cells::remarks(&self.reference).collect();
        page.section("Published", &format!("{source} {}", remarks.join(" ")));
        let rows = self.reference.iter().map(cells::published);
        page.table(cells::PUBLISHED, rows);
    }
}
