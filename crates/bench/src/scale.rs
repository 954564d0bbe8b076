//! Throughput by the number of members.

mod page;
mod text;

use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::{Head, Measurement, ScalingRow, reference};

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct ScaleOptions {
    /// What is measured, on which tokens.
    pub title: String,
    /// Numbers of members, in the order of measurements. The least one is the base of comparison.
    pub members: Vec<usize>,
    /// The published kind of key for comparison, if the members are SmartCard-HSMs; see
    /// [`crate::BenchKey::published_kind`].
    pub published: Option<&'static str>,
}

/// The result. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaleReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// The title.
    pub title: String,
    /// The published kind of key like the measured one, if any and if the members are SmartCard-HSMs.
    pub published: Option<String>,
    /// The steps by the number of members.
    pub steps: Vec<ScaleStep>,
    /// Events during the measurement; their cause adds them.
    pub events: Vec<ScaleEvent>,
    /// Published figures of a cluster of SmartCard-HSMs with this kind of key.
    pub reference: Vec<ScalingRow>,
}

impl ScaleReport {
    /// The number of members of the interrupted step, if any.
    pub fn interrupted_with(&self) -> Option<usize> {
        let interrupted = |step: &&ScaleStep| step.measurement.interrupted;
        Some(self.steps.iter().find(interrupted)?.members)
    }
}

/// The measurement with one number of members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScaleStep {
    /// Number of members.
    pub members: usize,
    /// The rate relative to that of one member, computed from the step with the fewest.
    pub speed_up: f64,
    /// `speed_up` per member: 1 is linear.
    pub efficiency: f64,
    /// The published rate with the same number of SmartCard-HSMs, if any for this kind of key.
    pub published_per_second: Option<f64>,
    /// The measurement.
    pub measurement: Measurement,
}

/// An event during a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// The step, by its number of members.
    pub members: usize,
    /// Seconds since the start of its measurement.
    pub at_s: f64,
    /// Its description: `a worker of hsm2 is killed`.
    pub what: String,
}

/// Measures step by step. `load` enables the number of members, and measures. An interrupted step is the last, and
/// kept.
pub fn run(
    options: &ScaleOptions,
    load: &mut dyn FnMut(usize) -> Result<Measurement>,
) -> Result<ScaleReport> {
    if options.members.is_empty() || options.members.contains(&0) {
        return Err(Error::request(
            Kind::Invalid,
            "tokens: numbers from 1, as in 1,2,4,8",
        ));
    }
    let mut measured = Vec::new();
    for &members in &options.members {
        let measurement =
            load(members).map_err(|error| error.at(format_args!("with {members} members")))?;
        let interrupted = measurement.interrupted;
        measured.push((members, measurement));
        if interrupted {
            break;
        }
    }
    let reference = reference::scaling_of(options.published);
    let curve = reference::curve(&reference, options.published.unwrap_or_default());
    let steps = steps(measured, &curve);
    Ok(ScaleReport {
        head: Head::now("scale"),
        title: options.title.clone(),
        published: options.published.map(str::to_owned),
        steps,
        events: Vec::new(),
        reference,
    })
}

fn steps(mut measured: Vec<(usize, Measurement)>, curve: &[&ScalingRow]) -> Vec<ScaleStep> {
    measured.sort_by_key(|(members, _)| *members);
    let of_one =
        |(members, measurement): &(usize, Measurement)| measurement.per_second / *members as f64;
    let one = measured.first().map_or(0.0, of_one);
    measured
        .into_iter()
        .map(|(members, measurement)| {
            let speed_up = if one > 0.0 {
                measurement.per_second / one
            } else {
                0.0
            };
            let published = curve.iter().find(|row| row.hsms as usize == members);
            ScaleStep {
                members,
                speed_up,
                efficiency: speed_up / members as f64,
                published_per_second: published.map(|row| row.per_second),
                measurement,
            }
        })
        .collect()
}
