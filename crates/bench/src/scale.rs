//! Throughput against the number of members: what a second, fourth, eighth token adds.

mod page;
mod text;

use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::{Head, Measurement, ScalingRow, reference};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// For people: `pool web, EC P-256, 16 callers`.
    pub title: String,
    /// Numbers of members, in the order of measuring; the least one is what the others are held against.
    pub members: Vec<usize>,
    /// The published kind of key that the curve is held against; see [`crate::Key::published_kind`].
    pub published: Option<&'static str>,
}

/// What the measurement found. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// For people.
    pub title: String,
    /// The published kind of key that is like the measured one, where there is one.
    pub published: Option<String>,
    /// By the number of members.
    pub steps: Vec<Step>,
    /// What happened meanwhile; whoever made it happen adds it.
    pub events: Vec<Event>,
    /// Published figures of a cluster of SmartCard-HSMs.
    pub reference: Vec<ScalingRow>,
}

impl Report {
    /// The number of members with which it was ended before its time, if it was.
    pub fn interrupted_with(&self) -> Option<usize> {
        let interrupted = |step: &&Step| step.measurement.interrupted;
        Some(self.steps.iter().find(interrupted)?.members)
    }
}

/// The measurement with so many members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Members that served.
    pub members: usize,
    /// Rate over that of one member, by the step with the fewest.
    pub speed_up: f64,
    /// `speed_up` for each member: 1 is linear.
    pub efficiency: f64,
    /// The published rate with as many SmartCard-HSMs, where there is one for this kind of key.
    pub published_per_second: Option<f64>,
    /// What was measured.
    pub measurement: Measurement,
}

/// Something that happened during a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The step, by its number of members.
    pub members: usize,
    /// Since its measurement began.
    pub at_s: f64,
    /// For people: `a worker of hsm2 is killed`.
    pub what: String,
}

/// Measures step by step. `load` lets so many members serve, and measures.
///
/// An interrupted step is the last one, and is kept.
pub fn run(
    options: &Options,
    load: &mut dyn FnMut(usize) -> Result<Measurement>,
) -> Result<Report> {
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
    let reference = reference::scaling();
    let curve = reference::curve(&reference, options.published.unwrap_or_default());
    let steps = steps(measured, &curve);
    Ok(Report {
        head: Head::now("scale"),
        title: options.title.clone(),
        published: options.published.map(str::to_owned),
        steps,
        events: Vec::new(),
        reference,
    })
}

fn steps(mut measured: Vec<(usize, Measurement)>, curve: &[&ScalingRow]) -> Vec<Step> {
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
            Step {
                members,
                speed_up,
                efficiency: speed_up / members as f64,
                published_per_second: published.map(|row| row.per_second),
                measurement,
            }
        })
        .collect()
}
