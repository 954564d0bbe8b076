//! The results, on the screen and as a page with its data.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use hsmux_bench::Machine;
use hsmux_bench::compare::{Bound, CompareReport, Figure};
use hsmux_token::{Error, Result};
use serde::Serialize;

use crate::fact::Fact;

/// All that was measured in one run.
#[derive(Serialize)]
pub struct Page {
    machine: Machine,
    comparisons: Vec<CompareReport>,
    facts: Vec<Fact>,
    /// Parts that could not be measured, with their errors.
    lost: Vec<String>,
    /// Parts that were not measured yet.
    pub coming: Vec<&'static str>,
}

impl Page {
    /// An empty page.
    pub fn new() -> Self {
        Self {
            machine: Machine::this(),
            comparisons: Vec::new(),
            facts: Vec::new(),
            lost: Vec::new(),
            coming: Vec::new(),
        }
    }

    /// Adds a comparison and prints it.
    pub fn compared(&mut self, report: Result<CompareReport>) -> Result<()> {
        let report = report?;
        println!("{report}");
        self.comparisons.push(report);
        Ok(())
    }

    /// The same for several.
    pub fn all_compared(&mut self, reports: Result<Vec<CompareReport>>) -> Result<()> {
        let mut reports = reports?.into_iter();
        reports.try_for_each(|report| self.compared(Ok(report)))
    }

    /// Adds single figures and prints them.
    pub fn counted(&mut self, title: &str, facts: Result<Vec<Fact>>) -> Result<()> {
        println!("{title}\n");
        for fact in facts? {
            println!("{fact}");
            self.facts.push(fact);
        }
        println!();
        Ok(())
    }

    /// Records a part that could not be measured; others continue.
    pub fn lost(&mut self, part: &str, error: &Error) {
        let lost = format!("{part} could not be measured: {error}");
        println!("{lost}\n");
        self.lost.push(lost);
    }

    /// Whether everything was measured and every goal reached.
    pub fn reached(&self) -> bool {
        let compared = self.comparisons.iter().all(CompareReport::reached);
        let complete = self.lost.is_empty() && self.coming.is_empty();
        compared && self.facts.iter().all(Fact::reached) && complete
    }

    /// Prints the result, and the names of the files that [`Self::write`] wrote.
    pub fn finish(&self, file: Option<&Path>) {
        println!("{}", self.verdict());
        let written = file.into_iter().flat_map(|file| files(file, WHOLE));
        written.for_each(|file| println!("{}", file.display()));
    }

    /// Writes `file`.md and `file`.json, or `file`.partial.md and `file`.partial.json if parts are still to be measured.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let json = serde_json::to_string_pretty(self).expect("JSON of plain data");
        let is_whole = self.coming.is_empty();
        let names = files(file, if is_whole { WHOLE } else { PARTIAL });
        for (name, text) in names.iter().zip([self.markdown(), json + "\n"]) {
            fs::write(name, text)?;
        }
        if is_whole {
            for partial in files(file, PARTIAL) {
                let _ = fs::remove_file(partial);
            }
        }
        Ok(())
    }

    fn verdict(&self) -> &'static str {
        if self.reached() {
            "Every figure is reached."
        } else {
            "NOT every figure is reached."
        }
    }

    /// The end of the last comparison.
    fn when(&self) -> String {
        let last = self.comparisons.last();
        last.map_or_else(String::new, |report| {
            format!(" at {}", report.head.measured_at)
        })
    }

    fn markdown(&self) -> String {
        let mut page = format!(
            "# Figures\n\nWritten by `make bench`{} on {}. Ratios are medians over rounds in which the \
             variants took turns; absolute rates are this machine's.\n\n{}\n\n\
             | figure | measured | rounds | goal | |\n|---|---|---|---|---|\n",
            self.when(),
            self.machine,
            self.verdict()
        );
        let figures = self.comparisons.iter().flat_map(|report| &report.figures);
        let rows = figures.map(row);
        let rows = rows.chain(self.facts.iter().map(Fact::row));
        for cells in rows {
            writeln!(page, "| {} |", cells.join(" | ")).expect("a string");
        }
        for lost in &self.lost {
            write!(page, "\n{lost}\n").expect("a string");
        }
        if !self.coming.is_empty() {
            let coming = self.coming.join(", ");
            write!(page, "\nNot measured yet: {coming}.\n").expect("a string");
        }
        for report in &self.comparisons {
            write!(page, "\n```text\n{report}```\n").expect("a string");
        }
        page
    }
}

/// The extensions of the page and its data.
const WHOLE: [&str; 2] = ["md", "json"];
const PARTIAL: [&str; 2] = ["partial.md", "partial.json"];

fn files(file: &Path, extensions: [&str; 2]) -> [PathBuf; 2] {
    extensions.map(|extension| file.with_extension(extension))
}

fn row(figure: &Figure) -> [String; 5] {
    let goal = &figure.goal;
    let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let bound = match goal.bound {
        Bound::RateRatioAtLeast(bound) => format!("at least {bound:.4}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        Bound::RateRatioWithin(share) => format!("within {} %", share * 100.0),
        Bound::TimeRatioAtMost(bound)
        | Bound::TailAtMost(bound)
        | Bound::ServerTimeRatioAtMost(bound) => format!("at most {bound}"),
        Bound::AddedMedianAtMost(bound) => format!("at most {bound} us"),
    };
    [
        format!(
            "{} against {}: {}",
            goal.of,
            goal.against,
            goal.bound.subject()
        ),
        show(figure.value),
        format!("{} .. {}", show(figure.min), show(figure.max)),
        bound,
        verdict(figure.reached).to_owned(),
    ]
}

/// The word for a goal's result.
pub fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "MISSED" }
}
