//! The table as a page of charts and tables.

use super::{MatrixReport, MatrixRow};
use crate::TlsRow;
use crate::format::{count, plain, rate, three};
use crate::report::chart::{Chart, ChartSeries, Ink, Style};
use crate::report::page::Page;
use crate::tls::Figures;

impl MatrixReport {
    /// One self-contained HTML file; charts are inline SVG.
    pub fn html(&self) -> String {
        let mut page = Page::new(&self.what(), &self.head.when_and_where());
        let best = || self.rows.iter().filter_map(MatrixRow::figures);
        page.headline(&[
            ("cells measured", count(best().count() as u64)),
            (
                "transactions",
                count(best().map(|best| best.transactions).sum()),
            ),
            ("failed", count(best().map(|best| best.failed).sum())),
        ]);
        page.section(
            "Beside the published",
            "Measured rate over the published one (R. van Elst, raymii.org, 2016, on Raspberry Pis with \
             SmartCard-HSMs: other hardware), by the number of the row below.",
        );
        page.chart(&self.ratios());
        let numbered = self.rows.iter().enumerate().map(|(at, row)| {
            let mut cells = row.cells();
            cells[0] = format!("{}. {}", at + 1, cells[0]);
            cells
        });
        page.table(MatrixRow::HEADS, numbered);
        for rows in self.series() {
            let cell = &rows[0].cell;
            let what = format!(
                "{}, {}, {}, {}",
                cell.key,
                cell.module,
                cell.page,
                cell.load()
            );
            page.section(&what, "Transactions per second against tokens.");
            page.chart(&against_tokens(&rows));
        }
        page.section(
            "Every run",
            "Siege's figures of all runs, and of the published one.",
        );
        let every = self.rows.iter().enumerate();
        let rows = every.flat_map(|(at, row)| row.every(at + 1));
        page.wide_table(&EVERY, rows);
        let errors: Vec<_> = self.errors().map(|error| [error]).collect();
        if !errors.is_empty() {
            page.section("Not measured", "These cells are tried again next time.");
            page.table(["cell"], errors);
        }
        page.finish()
    }

    fn ratios(&self) -> Chart<'static> {
        let numbered = (1_u32..).map(f64::from).zip(&self.rows);
        let ratios = numbered.filter_map(|(number, row)| Some((number, row.ratio()?)));
        let end = self.rows.len() as f64;
        Chart {
            x: "row",
            y: "times the published",
            lines: vec![
                ChartSeries::new(
                    "published",
                    Ink::Published,
                    vec![(0.0, 1.0), (end, 1.0)],
                    Style::Dashed,
                ),
                ChartSeries::new("measured", Ink::Measured, ratios.collect(), Style::Apart),
            ],
            marks: Vec::new(),
            whole_x: true,
        }
    }

    /// Groups of rows that differ only in the number of tokens.
    fn series(&self) -> Vec<Vec<&MatrixRow>> {
        let mut series: Vec<Vec<&MatrixRow>> = Vec::new();
        for row in self.rows.iter().filter(|row| row.best.is_some()) {
            let alike = series.iter_mut().find(|rows| {
                let (one, other) = (&rows[0].cell, &row.cell);
                (&one.key, &one.module, &one.page) == (&other.key, &other.module, &other.page)
                    && one.load() == other.load()
            });
            match alike {
                Some(rows) => rows.push(row),
                None => series.push(vec![row]),
            }
        }
        series.retain(|rows| rows.len() > 1);
        series
    }
}

fn against_tokens(rows: &[&MatrixRow]) -> Chart<'static> {
    let points = |figures: &dyn Fn(&MatrixRow) -> Option<f64>| {
        let points = rows
            .iter()
            .filter_map(|row| Some((f64::from(row.cell.hsms), figures(row)?)));
        points.collect()
    };
    let measured = points(&|row| Some(row.figures()?.rate_per_s));
    let published = points(&|row| Some(row.published.as_ref()?.figures.rate_per_s));
    Chart {
        x: "tokens",
        y: "transactions per second",
        lines: vec![
            ChartSeries::new("published", Ink::Published, published, Style::Dots),
            ChartSeries::new("measured", Ink::Measured, measured, Style::Dots),
        ],
        marks: Vec::new(),
        whole_x: true,
    }
}

const EVERY: [&str; 11] = [
    "row",
    "",
    "hits",
    "available",
    "elapsed",
    "data",
    "response",
    "rate",
    "concurrency",
    "longest",
    "shortest",
];

impl MatrixRow {
    fn every(&self, number: usize) -> Vec<Vec<String>> {
        let runs = self.runs.iter().enumerate().map(|(at, run)| {
            let star = if self.best == Some(at) { ", best" } else { "" };
            (format!("run {}{star}", at + 1), &run.figures)
        });
        let published = self.published.iter();
        let published =
            published.map(|row: &TlsRow| (format!("published, {}", row.module), &row.figures));
        runs.chain(published)
            .map(|(name, figures)| {
                let begin = [number.to_string(), name];
                begin.into_iter().chain(siege(figures)).collect()
            })
            .collect()
    }
}

fn siege(figures: &Figures) -> [String; 9] {
    let seconds = |time: f64| format!("{} s", three(time));
    [
        count(figures.transactions),
        format!("{:.2} %", figures.availability_pct),
        seconds(figures.elapsed_s),
        format!("{} MB", plain(figures.data_mb)),
        seconds(figures.response_s),
        rate(figures.rate_per_s),
        plain(figures.concurrency),
        seconds(figures.longest_s),
        seconds(figures.shortest_s),
    ]
}
