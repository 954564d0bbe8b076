//! Variants of the same work side by side, in alternating order. Absolute rates vary by tens of percent on a shared
//! machine, so a figure is the median over rounds of the ratio within a round.

mod text;

use hsmux_token::Result;
use serde::{Deserialize, Serialize};

use crate::{Head, Measurement};

/// A way to do the work.
pub struct Variant<'a> {
    /// Its name in the report and in goals.
    pub name: String,
    /// Does the work for a while, and returns the measurement.
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

/// A goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The variant that has to reach it.
    pub of: String,
    /// The variant of comparison.
    pub against: String,
    /// The compared quantity, and its bound.
    pub bound: Bound,
}

/// The comparison of two variants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Minimum ratio of the throughputs.
    RateRatioAtLeast(f64),
    /// Maximum deviation of the ratio of the throughputs from 1.
    RateRatioWithin(f64),
    /// Maximum ratio of the times.
    TimeRatioAtMost(f64),
    /// Maximum ratio of the server's CPU time per operation.
    /// The server is all accounted processes except the first, which measures.
    ServerTimeRatioAtMost(f64),
    /// Maximum difference of the median latencies, in microseconds.
    AddedMedianAtMost(f64),
    /// Maximum ratio of the first's 99th percentile to the second's median; both may be the same variant.
    TailAtMost(f64),
}

/// The result of a comparison. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompareReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// Its title.
    pub title: String,
    /// Turns of each variant.
    pub rounds: usize,
    /// Whether it was interrupted; then it has only the complete rounds before.
    #[serde(default)]
    pub interrupted: bool,
    /// The variants, in the given order.
    pub variants: Vec<Series>,
    /// The goals, with their results.
    pub figures: Vec<Figure>,
}

/// The rounds of a variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The variant.
    pub name: String,
    /// Median over the rounds of operations per second.
    pub per_second: f64,
    /// Median over the rounds of the median latency, in microseconds; absent if nothing succeeded.
    pub median_us: Option<f64>,
    /// Failed operations and wrong answers of all rounds.
    pub failed: u64,
    /// Every round.
    pub rounds: Vec<Measurement>,
}

/// A goal, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The goal.
    pub goal: Goal,
    /// Median over the rounds of the ratio, or of the difference in microseconds; absent without a comparison.
    pub value: Option<f64>,
    /// The minimum of the rounds.
    pub min: Option<f64>,
    /// The maximum of the rounds.
    pub max: Option<f64>,
    /// Whether the median keeps the bound, and neither variant has failures.
    pub reached: bool,
}

/// Gives each variant its turn, `rounds` times. `turn` gets the round, from 0, and the variant's name before each.
/// Goals with unknown variants are omitted.
pub fn run(
    title: &str,
    mut variants: Vec<Variant<'_>>,
    goals: &[Goal],
    rounds: usize,
    mut turn: impl FnMut(usize, &str),
) -> Result<CompareReport> {
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
                // An incomplete round is discarded.
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
    Ok(CompareReport {
        interrupted,
        ..CompareReport::new(title, names.zip(measured), goals)
    })
}

impl CompareReport {
    /// Judges existing measurements: names of variants, and the same number of rounds of each.
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

    /// Whether everything was measured and every goal reached.
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
    /// The compared quantity, in a few words.
    pub const fn subject(self) -> &'static str {
        match self {
            Self::RateRatioAtLeast(_) | Self::RateRatioWithin(_) => "throughput",
            Self::TimeRatioAtMost(_) => "time",
            Self::ServerTimeRatioAtMost(_) => "server CPU for each",
            Self::AddedMedianAtMost(_) => "added latency, p50",
            Self::TailAtMost(_) => "p99 over p50",
        }
    }

    /// The ratio or difference of two measurements, if defined.
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

/// CPU seconds per operation.
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
