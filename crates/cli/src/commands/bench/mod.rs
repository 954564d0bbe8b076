//! `hsmux bench`.

mod compare;
mod run;
mod scale;
mod sign;
mod target;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;

/// Measurements. Their JSON is described by docs/bench-schema.json.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// Evaluate signatures by one key: throughput, latencies, CPU and memory of every process
    Sign(sign::Sign),
    /// Measure throughput against the number of members
    Scale(scale::Scale),
    /// Compare ways to the same token side by side, by their ratios
    Compare(compare::Compare),
}

impl Bench {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::Sign(command) => command.run(context),
            Self::Scale(command) => command.run(context),
            Self::Compare(command) => command.run(context),
        }
    }
}
