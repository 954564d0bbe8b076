//! Variants of the same work side by side: what counts is their ratio in one run.
//!
//! Absolute rates swing by tens of percent between runs on a shared machine. Variants therefore take
//! turns, every other round in the reverse order, and a figure is the median over the rounds of the
//! ratio within a round.

mod text;

use hsmux_token::Result;
use serde::{Deserialize, Serialize};

use crate::{Head, Measurement};

/// One way of doing the work.
pub struct Variant<'a> {
    /// What the report calls it; figures name it by this.
    pub name: String,
    /// Does the work for a while, and says how it went.
    pub run: Box<dyn FnMut() -> Result<Measurement> + 'a>,
}

impl<'a> Variant<'a> {
    /// A variant of this name.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<Measurement> + 'a) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// What is to be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The variant that has to reach it.
    pub of: String,
    /// The variant that it is held against.
    pub against: String,
    /// What of the two, and the bound.
    pub bound: Bound,
}

/// How two variants are held against each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Throughput of the one over that of the other, at least.
    RateRatioAtLeast(f64),
    /// Throughput of the one over that of the other, off 1 by no more than this share of 1.
    RateRatioWithin(f64),
    /// Time that the one took over that of the other, at most.
    TimeRatioAtMost(f64),
    /// CPU time of the server for each operation: of the one over that of the other, at most. The server is all
    /// processes that were accounted for but the measuring one, which is the first.
    ServerTimeRatioAtMost(f64),
    /// Median latency of the one less that of the other, in microseconds, at most.
    AddedMedianAtMost(f64),
    /// 99th percentile of the one's latencies over the median of the other's, at most. The two may be
    /// the same.
    TailAtMost(f64),
}

/// What comparing found. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// What was compared, for people.
    pub title: String,
    /// How often each variant had its turn.
    pub rounds: usize,
    /// Somebody has ended it before its last round, the whole ones before which are here.
    #[serde(default)]
    pub interrupted: bool,
    /// In the order given.
    pub variants: Vec<Series>,
    /// What was to be reached, and whether it was.
    pub figures: Vec<Figure>,
}

/// A variant's rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The variant.
    pub name: String,
    /// Median over the rounds of operations per second.
    pub per_second: f64,
    /// Median over the rounds of the median latency, in microseconds; absent when nothing succeeded.
    pub median_us: Option<f64>,
    /// Operations that failed, and answers that were wrong, over all rounds.
    pub failed: u64,
    /// Every round.
    pub rounds: Vec<Measurement>,
}

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was to be reached.
    pub goal: Goal,
    /// Median over the rounds of the ratio, or of the difference in microseconds; absent when there
    /// was nothing to compare.
    pub value: Option<f64>,
    /// The least of the rounds.
    pub min: Option<f64>,
    /// The greatest of the rounds.
    pub max: Option<f64>,
    /// Whether the median keeps the bound and nothing failed, of neither.
    pub reached: bool,
}

/// Gives each variant its turn, `rounds` times.
///
/// `turn` is told before each: the round from 0, and the variant's name. A goal that names no
/// variant of the list is left out.
pub fn run(
    title: &str,
    mut variants: Vec<Variant<'_>>,
    goals: &[Goal],
    rounds: usize,
    mut turn: impl FnMut(usize, &str),
) -> Result<Report> {
    let mut measured: Vec<Vec<Measurement>> = variants.iter().map(|_| Vec::new()).collect();
    let mut interrupted = false;
    'rounds: for round in 0..rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let variant = &mut variants[at];
            turn(round, &variant.name);
            let measurement = (variant.run)().map_err(|error| error.at(&variant.name))?;
            if measurement.interrupted {
                // A round that is not whole compares nothing.
                for whole in &mut measured {
                    whole.truncate(round);
                }
                interrupted = true;
                break 'rounds;
            }
            measured[at].push(measurement);
        }
    }
    let names = variants.into_iter().map(|variant| variant.name);
    Ok(Report {
        interrupted,
        ..Report::new(title, names.zip(measured), goals)
    })
}

impl Report {
    /// Judges what was measured elsewhere: names of variants, and as many rounds of each.
    pub fn new(
        title: &str,
        measured: impl IntoIterator<Item = (String, Vec<Measurement>)>,
        goals: &[Goal],
    ) -> Self {
        let series = measured
            .into_iter()
            .map(|(name, rounds)| Series::new(name, rounds));
        let variants: Vec<Series> = series.collect();
        let rounds = variants.iter().map(|series| series.rounds.len()).max();
        Self {
            head: Head::now("compare"),
            title: title.to_owned(),
            rounds: rounds.unwrap_or_default(),
            interrupted: false,
            figures: goals
                .iter()
                .filter_map(|goal| Figure::new(goal, &variants))
                .collect(),
            variants,
        }
    }

    /// Whether all was measured and every goal reached.
    pub fn reached(&self) -> bool {
        !self.interrupted && self.figures.iter().all(|figure| figure.reached)
    }
}

impl Series {
    fn new(name: String, rounds: Vec<Measurement>) -> Self {
        let rates = rounds.iter().map(|round| round.per_second).collect();
        Self {
            name,
            per_second: median(rates).unwrap_or(0.0),
            median_us: median(rounds.iter().filter_map(p50).collect()),
            failed: rounds.iter().map(|round| round.failed + round.wrong).sum(),
            rounds,
        }
    }
}

impl Figure {
    fn new(goal: &Goal, series: &[Series]) -> Option<Self> {
        let find = |name: &str| series.iter().find(|series| series.name == name);
        let (of, against) = (find(&goal.of)?, find(&goal.against)?);
        let pairs = of.rounds.iter().zip(&against.rounds);
        let values: Vec<f64> = pairs.filter_map(|(a, b)| goal.bound.hold(a, b)).collect();
        let value = median(values.clone());
        Some(Self {
            goal: goal.clone(),
            value,
            min: values.iter().copied().min_by(f64::total_cmp),
            max: values.iter().copied().max_by(f64::total_cmp),
            reached: value.is_some_and(|value| goal.bound.keeps(value))
                && of.failed + against.failed == 0,
        })
    }
}

impl Bound {
    /// What of the two is held against each other, in a few words.
    pub const fn subject(self) -> &'static str {
        match self {
            Self::RateRatioAtLeast(_) | Self::RateRatioWithin(_) => "throughput",
            Self::TimeRatioAtMost(_) => "time",
            Self::ServerTimeRatioAtMost(_) => "server CPU for each",
            Self::AddedMedianAtMost(_) => "added latency, p50",
            Self::TailAtMost(_) => "p99 over p50",
        }
    }

    /// The ratio or the difference of two measurements, where there is one.
    fn hold(self, of: &Measurement, against: &Measurement) -> Option<f64> {
        let value = match self {
            Self::RateRatioAtLeast(_) | Self::RateRatioWithin(_) => {
                of.per_second / against.per_second
            }
            Self::TimeRatioAtMost(_) => of.elapsed_s / against.elapsed_s,
            Self::ServerTimeRatioAtMost(_) => server_time(of) / server_time(against),
            Self::AddedMedianAtMost(_) => p50(of)? - p50(against)?,
            Self::TailAtMost(_) => of.latency_us?.p99 / p50(against)?,
        };
        value.is_finite().then_some(value)
    }

    fn keeps(self, value: f64) -> bool {
        match self {
            Self::RateRatioAtLeast(bound) => value >= bound,
            Self::RateRatioWithin(share) => (value - 1.0).abs() <= share,
            Self::TimeRatioAtMost(bound)
            | Self::ServerTimeRatioAtMost(bound)
            | Self::AddedMedianAtMost(bound)
            | Self::TailAtMost(bound) => value <= bound,
        }
    }
}

/// Seconds of CPU for each operation.
fn server_time(measurement: &Measurement) -> f64 {
    let server = measurement.processes.iter().skip(1);
    server.map(|process| process.cpu_s).sum::<f64>() / measurement.ops as f64
}

fn p50(measurement: &Measurement) -> Option<f64> {
    Some(measurement.latency_us?.p50)
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len().is_multiple_of(2) {
        Some(f64::midpoint(values[values.len() / 2 - 1], upper))
    } else {
        Some(upper)
    }
}
