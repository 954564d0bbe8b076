//! `hsmux bench compare`.

use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use hsmux_bench::compare::{self, Bound, Goal, Variant};
use hsmux_bench::sign;
use hsmux_config::PinSource;
use hsmux_token::{Error, Kind, Uri};

use super::run::{RunArgs, interrupt, watched};
use super::target::{OpenTarget, daemon, direct, embedded};
use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux bench compare`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux bench compare --concurrency 1 --goal 'daemon-direct<=40'\n  \
    hsmux bench compare --concurrency 16 --goal 'daemon/direct>=1' \\\n    \
      --variant 'p11-kit=pkcs11:token=hsm1?module-path=/usr/lib/x86_64-linux-gnu/pkcs11/p11-kit-client.so'\n\n\
    Variants: direct (the first member's module), daemon, embedded (the pool in this process),\n\
    and each --variant. Exit code 3 if a goal is not reached.")]
pub struct Compare {
    /// The targets: direct, daemon or embedded
    #[arg(long, value_delimiter = ',', default_value = "direct,daemon")]
    of: Vec<TargetKind>,
    /// A further target: NAME=URI, where module-path is the module and pin-source a PIN file
    #[arg(long = "variant", value_name = "NAME=URI")]
    variants: Vec<NamedVariant>,
    /// A goal: A/B>=RATIO of throughputs, or A-B<=MICROSECONDS of median latencies
    #[arg(long = "goal", value_name = "GOAL")]
    goals: Vec<GoalArg>,
    /// Turns of each target
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TargetKind {
    Direct,
    Daemon,
    Embedded,
}

#[derive(Clone, Debug)]
struct NamedVariant(String, Uri);

/// `A/B>=0.95`. Names may contain dashes, so the known variants decide where they end.
#[derive(Clone, Debug)]
struct GoalArg {
    pair: String,
    operator: char,
    bound: Bound,
}

impl Compare {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let mut opened = Vec::new();
        for built in &self.of {
            let name = format!("{built:?}").to_lowercase();
            opened.push((name, self.open(context, *built)?));
        }
        for NamedVariant(name, uri) in &self.variants {
            opened.push((name.clone(), self.open_uri(context, uri)?));
        }
        let names: Vec<_> = opened.iter().map(|(name, _)| name.as_str()).collect();
        let goals = self.goals.iter().map(|goal| goal.resolve(&names));
        let goals = goals.collect::<anyhow::Result<Vec<_>>>()?;
        let mut variants = Vec::new();
        for (name, opened) in &opened {
            let options = self.run.options(opened).with_context(|| name.clone())?;
            let stop = &stop;
            variants.push(Variant::new(name.clone(), move || {
                let mechanism = options.mechanism.as_ref().unwrap_or(&options.key.mechanism);
                watched(stop, |control| sign::measure(&options, mechanism, control))
                    .map_err(|e| Error::pool(Kind::Invalid, format!("{e:#}")))
            }));
        }
        let title = format!("signatures, {} callers", self.run.concurrency);
        let report = compare::run(&title, variants, &goals, self.rounds, |_, _| {})?;
        if context.json {
            output::json(&report)?;
        } else {
            print!("{report}");
        }
        Ok(if report.reached() {
            Exit::Done
        } else {
            Exit::Degraded
        })
    }

    fn open(&self, context: &Context, built: TargetKind) -> anyhow::Result<OpenTarget> {
        let config = context.load()?;
        match built {
            TargetKind::Daemon => daemon(&config, None),
            TargetKind::Embedded => embedded(&config),
            TargetKind::Direct => {
                let first = config
                    .tokens
                    .iter()
                    .find(|member| member.node.is_none())
                    .context("the configuration has no [[token]] of this host")?;
                let (module, uri) = (first.module.clone(), first.uri.clone());
                direct(context, module, Some(uri), None, self.run.concurrency)
            }
        }
    }

    fn open_uri(&self, context: &Context, uri: &Uri) -> anyhow::Result<OpenTarget> {
        let module = uri
            .module_path
            .clone()
            .context("--variant: the URI has no module-path")?;
        let file = uri.pin_source.as_deref();
        let file = file.map(|file| file.strip_prefix("file:").unwrap_or(file));
        let pin = file
            .map(|file| PinSource::File(file.into()).read())
            .transpose()?;
        let token = Uri {
            module_path: None,
            pin_source: None,
            ..uri.clone()
        };
        direct(
            context,
            module.into(),
            Some(token),
            pin,
            self.run.concurrency,
        )
    }
}

impl FromStr for NamedVariant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, uri) = text.split_once('=').ok_or("NAME=URI is wanted")?;
        Ok(Self(
            name.into(),
            uri.parse()
                .map_err(|e: hsmux_token::UriError| e.to_string())?,
        ))
    }
}

impl GoalArg {
    /// Returns the goal if both of its names are known.
    fn resolve(&self, names: &[&str]) -> anyhow::Result<Goal> {
        let pairs = names
            .iter()
            .flat_map(|of| names.iter().map(move |against| (*of, *against)));
        let operator = self.operator;
        let mut meant =
            pairs.filter(|(of, against)| format!("{of}{operator}{against}") == self.pair);
        let Some((of, against)) = meant.next() else {
            let names = names.join(", ");
            let message = format!("--goal {}: the variants are {names}", self.pair);
            return Err(Exit::Usage.because(message));
        };
        Ok(Goal {
            of: of.to_owned(),
            against: against.to_owned(),
            bound: self.bound,
        })
    }
}

impl FromStr for GoalArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |comparison, operator: char, bound: fn(f64) -> Bound| {
            let (pair, number) = text.split_once(comparison)?;
            let pair: String = pair.split_whitespace().collect();
            let bound = bound(number.trim().parse().ok()?);
            pair.contains(operator).then_some(Self {
                pair,
                operator,
                bound,
            })
        };
        read(">=", '/', Bound::RateRatioAtLeast)
            .or_else(|| read("<=", '-', Bound::AddedMedianAtMost))
            .ok_or_else(|| "a goal is like daemon/direct>=0.95 or daemon-direct<=40".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["daemon", "direct", "p11-kit"];

    #[test]
    fn goals_are_ratios_or_differences() {
        for (text, of, against, bound) in [
            (
                "daemon / direct >= 0.95",
                "daemon",
                "direct",
                Bound::RateRatioAtLeast(0.95),
            ),
            (
                "daemon-direct<=40",
                "daemon",
                "direct",
                Bound::AddedMedianAtMost(40.0),
            ),
            (
                "p11-kit-daemon<=1",
                "p11-kit",
                "daemon",
                Bound::AddedMedianAtMost(1.0),
            ),
        ] {
            let goal = text.parse::<GoalArg>().unwrap().resolve(&NAMES).unwrap();
            assert_eq!((goal.of.as_str(), goal.against.as_str()), (of, against));
            assert_eq!(goal.bound, bound);
        }
        for bad in ["daemon", "daemon>=1", "daemon/direct<=1", "a/b>=x"] {
            assert!(bad.parse::<GoalArg>().is_err(), "{bad}");
        }
        let unknown = "daemon/dirct>=1".parse::<GoalArg>().unwrap();
        assert!(unknown.resolve(&NAMES).is_err());
    }
}
