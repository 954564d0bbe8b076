//! The burn-in as tables.

use std::fmt;
use std::time::Duration;

use super::{BurnInReport, ProcessMemory, TokenCounts};
use crate::format::{bytes, count, lines, rate, record, table, whole};
use crate::report::cells;
use crate::slope::Slope;

impl fmt::Display for BurnInReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.title()))?;
        let (target, callers) = (&self.target, self.callers);
        writeln!(f, "{}", lines(&format!("from {target}, {callers} callers")))?;
        let (begun, last) = (&self.begun_at, &self.head.measured_at);
        writeln!(f, "{}", lines(&format!("begun {begun}, last seen {last}")))?;
        writeln!(f, "{}\n", self.head)?;
        writeln!(f, "{}\n", record(self.figures()))?;
        for failure in &self.failures {
            writeln!(f, "{} times {}", count(failure.count), failure.kind)?;
            for example in &failure.examples {
                let example = format!("- {}: {}", example.token, example.message);
                writeln!(f, "{}", lines(&example))?;
            }
        }
        if !self.failures.is_empty() {
            writeln!(f)?;
        }
        let tokens = self.tokens.iter().map(TokenCounts::cells);
        writeln!(f, "{}\n", table(TOKEN, tokens))?;
        let processes = self.memory.iter().map(ProcessMemory::cells);
        writeln!(f, "{}", table(MEMORY, processes))?;
        if !self.reference.is_empty() {
            let heading = "Published: SmartCard-HSMs (other hardware, for reference)";
            let rows = self.reference.iter().map(cells::published);
            let heading = lines(heading);
            writeln!(f, "\n{heading}\n\n{}", table(cells::PUBLISHED, rows))?;
        }
        cells::remarks(&self.reference).try_for_each(|remark| writeln!(f, "{}", lines(&remark)))
    }
}

impl BurnInReport {
    pub(super) fn title(&self) -> String {
        let (key, len) = (&self.key, self.data_len);
        format!("burn-in of {} by {key}, over {len} bytes", self.mechanism)
    }

    /// The figures of the published test, with their values here.
    pub(super) fn figures(&self) -> Vec<(&'static str, String)> {
        let mut figures = vec![
            (
                "tests performed",
                format!("{} of {}", count(self.performed), count(self.tests)),
            ),
            ("tests failed", count(self.failed)),
            ("wrong signatures", count(self.wrong)),
            ("elapsed", self.elapsed()),
            ("rate", rate(self.per_second)),
        ];
        for (what, name) in [("fastest", &self.fastest), ("slowest", &self.slowest)] {
            let token = self
                .tokens
                .iter()
                .find(|token| Some(&token.name) == name.as_ref());
            let shown = token.map(|token| format!("{}, {}", token.name, rate(token.per_second)));
            figures.extend(shown.map(|shown| (what, shown)));
        }
        figures.push(("memory slope", self.memory_slope()));
        figures
    }

    fn elapsed(&self) -> String {
        let time = humantime::format_duration(Duration::from_secs(whole(self.elapsed_s)));
        match self.runs {
            0 | 1 => format!("{time} ({:.1} s)", self.elapsed_s),
            runs => format!("{time} ({:.1} s), in {runs} runs", self.elapsed_s),
        }
    }

    /// The slope of all processes, in one line.
    fn memory_slope(&self) -> String {
        let judged = self
            .memory
            .iter()
            .filter(|process| process.slope.is_some())
            .count();
        let growing: Vec<String> = self
            .growing()
            .map(|process| format!("{} {}", process.name, slope(process.slope)))
            .collect();
        match (judged, growing.as_slice()) {
            (0, _) => "not known: less than a minute".to_owned(),
            (judged, []) => format!("0 in each of {judged} processes"),
            (_, growing) => growing.join("; "),
        }
    }
}

/// The columns of the table of tokens.
pub(super) const TOKEN: [&str; 5] = ["token", "signatures", "failed", "wrong", "rate"];

impl TokenCounts {
    pub(super) fn cells(&self) -> [String; 5] {
        [
            self.name.clone(),
            count(self.served),
            count(self.failed),
            self.wrong.map_or_else(|| "-".to_owned(), count),
            rate(self.per_second),
        ]
    }
}

/// The columns of the table of processes.
pub(super) const MEMORY: [&str; 6] = ["process", "pid", "first", "last", "peak", "slope"];

impl ProcessMemory {
    pub(super) fn cells(&self) -> [String; 6] {
        [
            self.name.clone(),
            self.pid.to_string(),
            bytes(whole(self.first_bytes)),
            bytes(whole(self.last_bytes)),
            bytes(self.peak_bytes),
            slope(self.slope),
        ]
    }
}

/// `0 +- 12.3 kB/h`: a slope that is not significant is 0.
fn slope(slope: Option<Slope>) -> String {
    let Some(slope) = slope else {
        return "-".to_owned();
    };
    let per_hour = |value: f64| format!("{}/h", bytes(whole(value.abs())));
    let sign = if slope.per_hour < 0.0 { "-" } else { "+" };
    let growth = if slope.zero {
        "0".to_owned()
    } else {
        format!("{sign}{}", per_hour(slope.per_hour))
    };
    format!("{growth} +- {}", per_hour(slope.uncertainty))
}
