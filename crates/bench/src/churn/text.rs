//! The runs as a table.

use std::fmt;

use super::{ChurnReport, RunResults};
use crate::format::{count, lines, micros, rate, three};

impl ChurnReport {
    /// The measurement in a line.
    pub(super) fn what(&self) -> String {
        format!(
            "Keys come and go: AES-256-CBC of {} bytes by one key, half enciphering, half deciphering, {} \
             callers; measured {} s after each change",
            self.payload,
            self.callers,
            three(self.settle_s)
        )
    }

    /// The ratios of all ways to their twins, beside the published ones.
    pub(super) fn ratios(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let fixed = ["run", "keys", "restart", "published"].map(str::to_owned);
        let heads = fixed.into_iter().chain(self.ways.iter().cloned());
        let rows = self.rows.iter().map(|row| {
            let found = row.found.iter().map(|found| three(found.ratio));
            row.begin().into_iter().chain(found).collect()
        });
        (heads.collect(), rows.collect())
    }

    /// Each way by itself, all its runs in one line of a table.
    pub(super) fn each(&self) -> impl Iterator<Item = [String; 6]> {
        self.ways.iter().enumerate().map(|(at, name)| {
            let found = || self.rows.iter().filter_map(move |row| row.found.get(at));
            let least = found().map(|found| found.ratio).fold(f64::MAX, f64::min);
            let rates = found().map(|found| found.per_second);
            let (low, high) = rates.fold((f64::MAX, 0.0_f64), |(low, high), rate| {
                (low.min(rate), high.max(rate))
            });
            let longest = found().map(|found| found.longest_us).fold(0.0, f64::max);
            let known = found().next().is_some();
            let show = |text: String| if known { text } else { "-".to_owned() };
            [
                name.clone(),
                show(three(least)),
                show(rate(low)),
                show(rate(high)),
                show(micros(longest)),
                count(found().map(|found| found.failed).sum()),
            ]
        })
    }

    /// The headings of [`Self::each`].
    pub(super) const EACH: [&'static str; 6] = [
        "way",
        "worst ratio",
        "lowest rate",
        "highest rate",
        "longest",
        "failed",
    ];
}

impl RunResults {
    fn begin(&self) -> [String; 4] {
        [
            self.run.number.to_string(),
            count(self.run.keys as u64),
            if self.run.restarted { "yes" } else { "no" }.to_owned(),
            self.published_ratio.map_or("-".to_owned(), three),
        ]
    }
}

impl fmt::Display for ChurnReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", lines(&self.what()))?;
        writeln!(f, "{}\n", self.head)?;
        let about = "Throughput over that of the same, fresh, on a token that nobody changes. Published: over its mean \
             after a restart. Only what was published and the bare modules are restarted.";
        writeln!(f, "{}\n", lines(about))?;
        let (heads, rows) = self.ratios();
        writeln!(f, "{}\n", crate::format::wide_table(&heads, rows))?;
        writeln!(f, "{}", crate::format::table(Self::EACH, self.each()))?;
        for (row, found) in self.rows.iter().flat_map(|row| {
            let found = row.found.iter().zip(&self.ways);
            found.map(move |found| (row, found))
        }) {
            if let Some(error) = &found.0.error {
                let text = format!("run {}, {}: {error}", row.run.number, found.1);
                writeln!(f, "{}", lines(&text))?;
            }
        }
        if self.interrupted {
            writeln!(f, "interrupted")?;
        }
        Ok(())
    }
}
