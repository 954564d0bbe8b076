//! `hsmux bench compare`.

use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use hsmux_bench::compare::{self, Bound, Goal, Variant};
use hsmux_bench::sign;
use hsmux_pool::config::PinSource;
use hsmux_token::{Error, Kind, Uri};

use super::run::{RunArgs, interrupt, watched};
use super::target::{Opened, Target, daemon, direct, embedded};
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
    and each --variant. Exit code 3 when a goal is not reached.")]
pub struct Compare {
    /// Which of direct, daemon and embedded
    #[arg(long, value_delimiter = ',', default_value = "direct,daemon")]
    of: Vec<Built>,
    /// A further one: NAME=URI, whose module-path is the module and whose pin-source a PIN file
    #[arg(long = "variant", value_name = "NAME=URI")]
    variants: Vec<Named>,
    /// What is to be reached: A/B>=RATIO of throughputs, or A-B<=MICROSECONDS of median latencies
    #[arg(long = "goal", value_name = "GOAL")]
    goals: Vec<GoalArg>,
    /// How often each variant has its turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Built {
    Direct,
    Daemon,
    Embedded,
}

#[derive(Clone, Debug)]
struct Named(String, Uri);

#[derive(Clone, Debug)]
struct GoalArg(Goal);

impl Compare {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let stop = interrupt()?;
        let mut opened = Vec::new();
        for built in &self.of {
            let name = format!("{built:?}").to_lowercase();
            opened.push((name, self.open(context, *built)?));
        }
        for Named(name, uri) in &self.variants {
            opened.push((name.clone(), self.open_uri(context, uri)?));
        }
        let mut variants = Vec::new();
        for (name, opened) in &opened {
            let options = self
                .run
                .options(&self.target, opened)
                .with_context(|| name.clone())?;
            let stop = &stop;
            variants.push(Variant::new(name.clone(), move || {
                let mechanism = options.mechanism.as_ref().unwrap_or(&options.key.mechanism);
                watched(stop, |control| sign::measure(&options, mechanism, control))
                    .map_err(|e| Error::pool(Kind::Invalid, format!("{e:#}")))
            }));
        }
        let goals: Vec<_> = self.goals.iter().map(|goal| goal.0.clone()).collect();
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

    fn open(&self, context: &Context, built: Built) -> anyhow::Result<Opened> {
        let config = context.load()?;
        match built {
            Built::Daemon => daemon(&config, None),
            Built::Embedded => embedded(&config),
            Built::Direct => {
                let first = config
                    .tokens
                    .first()
                    .context("the configuration has no [[token]]")?;
                let (module, uri) = (first.module.clone(), first.uri.clone());
                direct(context, module, Some(uri), None, self.run.concurrency)
            }
        }
    }

    fn open_uri(&self, context: &Context, uri: &Uri) -> anyhow::Result<Opened> {
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

impl FromStr for Named {
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

impl FromStr for GoalArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = |comparison, operator| {
            let (pair, bound) = text.split_once(comparison)?;
            let (of, against) = pair.split_once(operator)?;
            Some((
                of.trim().to_owned(),
                against.trim().to_owned(),
                bound.trim().parse().ok()?,
            ))
        };
        let ratio = parts(">=", "/").map(|(of, against, bound)| Goal {
            of,
            against,
            bound: Bound::RateRatioAtLeast(bound),
        });
        let difference = || {
            parts("<=", "-").map(|(of, against, bound)| Goal {
                of,
                against,
                bound: Bound::AddedMedianAtMost(bound),
            })
        };
        ratio
            .or_else(difference)
            .map(Self)
            .ok_or_else(|| "a goal is like daemon/direct>=0.95 or daemon-direct<=40".into())
    }
}
