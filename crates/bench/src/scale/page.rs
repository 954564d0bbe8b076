//! The scaling measurement as a page of charts and tables.

use super::{Report, Step};
use crate::ScalingRow;
use crate::format::{bytes, count, rate, three, whole};
use crate::report::chart::{Chart, Ink, Line, Style};
use crate::report::page::Page;

impl Report {
    /// One HTML file that needs no other: charts are inline SVG.
    pub fn html(&self) -> String {
        let mut page = Page::new(
            &self.title,
            &format!("Measured {} on {}", self.measured_at, self.machine),
        );
        page.headline(&self.headline());
        page.section("Speed-up", "Rate over that of one member. Published: cloned keys on SmartCard-HSMs, on other hardware.");
        page.chart(&self.speed_up());
        page.section(
            "Throughput",
            "Signatures per second against members in service.",
        );
        page.chart(&self.throughput());
        page.table(
            [
                "Members",
                "Rate",
                "Speed-up",
                "Efficiency",
                "p50",
                "p99",
                "Failed",
                "Verified",
            ],
            self.steps.iter().map(Step::cells),
        );
        for step in &self.steps {
            self.course(step, &mut page);
        }
        self.costs(&mut page);
        self.published(&mut page);
        page.finish()
    }

    fn headline(&self) -> Vec<(&'static str, String)> {
        let total = |of: fn(&Step) -> u64| count(self.steps.iter().map(of).sum());
        let mut headline = Vec::new();
        if let Some(last) = self.steps.last() {
            headline.push(("at the most members", rate(last.measurement.per_second)));
            headline.push((
                "efficiency there",
                format!("{} %", three(100.0 * last.efficiency)),
            ));
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
        let mut lines = vec![Line {
            name: "linear".to_owned(),
            ink: Ink::Ideal,
            points: vec![(0.0, 0.0), (most, most)],
            style: Style::Dashed,
        }];
        for (key, ink) in [
            ("rsa-2048", Ink::Published),
            ("ec-brainpoolP256r1", Ink::PublishedToo),
        ] {
            lines.push(Line {
                name: format!("published: SmartCard-HSM, {key}"),
                ink,
                points: published_speed_up(&self.reference, key, most),
                style: Style::Dots,
            });
        }
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
        let lines = vec![self.measured(|step| step.measurement.per_second)];
        Chart {
            x: "members",
            y: "signatures per second",
            lines,
            marks: Vec::new(),
            whole_x: true,
        }
    }

    fn measured(&self, value: fn(&Step) -> f64) -> Line {
        Line {
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

    /// The rate as it went, where something happened.
    fn course(&self, step: &Step, page: &mut Page) {
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
        let course = &step.measurement.timeline;
        let start = course.first().map(|first| (0.0, first.per_second));
        let points = course.iter().map(|point| (point.at_s, point.per_second));
        let line = Line {
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
        page.table(
            ["Process", "pid", "CPU", "CPU time", "Peak memory"],
            last.measurement.processes.iter().map(|process| {
                [
                    process.name.clone(),
                    process.pid.to_string(),
                    format!("{} %", three(process.cpu_percent)),
                    format!("{} s", three(process.cpu_s)),
                    bytes(process.peak_memory_bytes),
                ]
            }),
        );
    }

    fn published(&self, page: &mut Page) {
        page.section(
            "Published",
            "CardContact, \u{201c}Building a SmartCard-HSM cluster\u{201d}, 2015-11-20.",
        );
        page.table(
            ["Key", "HSMs", "Signatures", "Duration", "Rate"],
            self.reference.iter().map(|row| {
                [
                    row.key.clone(),
                    row.hsms.to_string(),
                    count(u64::from(row.signatures)),
                    format!("{} s", count(whole(row.duration_s))),
                    rate(row.per_second),
                ]
            }),
        );
    }
}

/// Of one key, up to as many HSMs as were measured; the burn-in row of 8 HSMs repeats a point.
fn published_speed_up(rows: &[ScalingRow], key: &str, most: f64) -> Vec<(f64, f64)> {
    let of_key = || rows.iter().filter(|row| row.key == key);
    let Some(one) = of_key().find(|row| row.hsms == 1) else {
        return Vec::new();
    };
    let mut points: Vec<(f64, f64)> = of_key()
        .map(|row| (f64::from(row.hsms), row.per_second / one.per_second))
        .filter(|point| point.0 <= most.max(1.0))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by_key(|point| point.0);
    points
}
