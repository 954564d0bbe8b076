//! The table for people.

use std::fmt;

use super::{Cell, MatrixReport, MatrixRow};
use crate::format::{count, lines, plain, rate, table, three};
use crate::tls::Figures;

/// In one line: `rsa-2048, 3 HSMs, sc-hsm-embedded, static, 60 users in a burst`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key, module, page, ..
        } = self;
        let hsms = match self.hsms {
            0 => "no HSM".to_owned(),
            1 => "1 HSM".to_owned(),
            hsms => format!("{hsms} HSMs"),
        };
        write!(f, "{key}, {hsms}, {module}, {page}, {}", self.load())
    }
}

impl Cell {
    /// `20 users, up to 5 s`.
    pub(super) fn load(&self) -> String {
        let users = count(self.users as u64);
        match self.think_s {
            0.0 => format!("{users} users in a burst"),
            time => format!("{users} users, up to {} s", plain(time)),
        }
    }
}

impl MatrixRow {
    /// The headings of [`Self::cells`].
    pub(super) const HEADS: [&'static str; 6] = [
        "cell",
        "rate",
        "published\nrate",
        "ratio",
        "available",
        "published\navailable",
    ];

    /// The best run beside the published one.
    pub(super) fn cells(&self) -> [String; 6] {
        let published = self.published.as_ref().map(|row| &row.figures);
        let shown = |figures: Option<&Figures>, part: fn(&Figures) -> String| {
            figures.map_or_else(|| "-".to_owned(), part)
        };
        let available = |figures: &Figures| format!("{:.2} %", figures.availability_pct);
        [
            self.cell.to_string(),
            shown(self.figures(), |figures| rate(figures.rate_per_s)),
            shown(published, |figures| rate(figures.rate_per_s)),
            self.ratio().map_or_else(|| "-".to_owned(), three),
            shown(self.figures(), available),
            shown(published, available),
        ]
    }
}

impl MatrixReport {
    /// The measurement in a line.
    pub(super) fn what(&self) -> String {
        let left = match self.left {
            0 => String::new(),
            left => format!("; {} runs are left", count(left as u64)),
        };
        format!(
            "TLS, {} cells, each the best of {}{left}",
            count(self.rows.len() as u64),
            self.best_of
        )
    }

    /// Cells that could not be measured, with their errors.
    pub(super) fn errors(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter_map(|row| {
            let error = row.error.as_ref()?;
            Some(format!("{}: {error}", row.cell))
        })
    }
}

impl fmt::Display for MatrixReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.what()))?;
        writeln!(f, "{}\n", self.head)?;
        writeln!(
            f,
            "{}",
            table(MatrixRow::HEADS, self.rows.iter().map(MatrixRow::cells))
        )?;
        for error in self.errors() {
            writeln!(f, "\n{}", lines(&error))?;
        }
        Ok(())
    }
}
