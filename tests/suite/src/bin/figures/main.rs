//! Measures the figures of `docs/performance.md` side by side in one run: `make bench`. Each variant has a client
//! process `hsmux bench sign --direct MODULE`. Variants take turns; only ratios within a round are judged.

mod broker;
mod cards;
mod channel;
mod client;
mod clone;
mod fact;
mod footprint;
mod gateway;
mod one_token;
mod page;
mod progress;
mod published;
mod scaling;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hsmux_bench::compare::{self, CompareReport, Goal, Variant};
use hsmux_token::Result;

use page::Page;
use progress::Turns;

/// The allocator of `hsmux`, so that clients here are as fast as there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The extent of the measurements.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Turns of each variant.
    pub rounds: usize,
    /// The duration of a turn.
    pub turn: Duration,
    /// The idle time for the CPU of an idle daemon.
    pub idle: Duration,
    /// Signatures of each card with a real one's times.
    pub signatures: u32,
    /// Rounds of clones.
    pub clones: usize,
    /// The duration of a burst of users on cards.
    pub burst: Duration,
}

const THOROUGH: Effort = Effort {
    rounds: 5,
    turn: Duration::from_secs(3),
    idle: Duration::from_secs(10),
    signatures: 100,
    clones: 3,
    burst: Duration::from_secs(300),
};

const QUICK: Effort = Effort {
    rounds: 3,
    turn: Duration::from_secs(1),
    signatures: 20,
    clones: 1,
    burst: Duration::from_secs(60),
    ..THOROUGH
};

impl Effort {
    /// Gives each variant its turns, and reports each.
    pub fn compare(
        self,
        title: &str,
        variants: Vec<Variant<'_>>,
        goals: &[Goal],
    ) -> Result<CompareReport> {
        let mut turns = Turns::new(vec![self.turn; self.rounds * variants.len()]);
        let turn = |round, name: &str| turns.next(&format!("round {}: {name}", round + 1));
        compare::run(title, variants, goals, self.rounds, turn)
    }
}

/// A part that can be measured separately: its name and function.
type Part = (&'static str, fn(Effort, &mut Page) -> Result<()>);

const PARTS: &[Part] = &[
    ("embedded", |effort, page| {
        page.compared(one_token::embedded(effort))
    }),
    ("daemon", |effort, page| {
        page.compared(one_token::through_the_daemon(effort))
    }),
    ("members", |effort, page| {
        page.compared(scaling::many_members(effort))
    }),
    ("unequal", |effort, page| {
        page.compared(scaling::unequal_members(effort))
    }),
    ("cards-8", |effort, page| {
        page.compared(cards::eight(effort))
    }),
    ("cards-16", |effort, page| {
        page.compared(cards::sixteen(effort))
    }),
    ("cards-published", |effort, page| {
        page.all_compared(published::scaling_of_cards(effort))
    }),
    ("cards-clone", |effort, page| {
        page.compared(Ok(clone::twenty_keys(effort)))
    }),
    ("cards-pcscd", |effort, page| {
        page.compared(channel::with_the_times_of_a_card(effort))?;
        page.compared(channel::without_delay(effort))
    }),
    ("footprint", |effort, page| {
        page.counted("The daemon and its workers", footprint::footprint(effort))
    }),
    ("broker-churn-standin", |effort, page| {
        page.compared(broker::over_the_stand_in(effort))
    }),
    ("broker-churn-foreign", |effort, page| {
        page.compared(broker::foreign_churn(effort))
    }),
    ("broker-engine", |effort, page| {
        page.compared(broker::below_http(effort))
    }),
    ("broker-http", |effort, page| {
        page.compared(broker::requests(effort))
    }),
    ("broker-batch", |effort, page| {
        page.compared(broker::batches(effort))
    }),
    ("broker-connections", |effort, page| {
        page.counted("The broker", broker::many_connections(effort))
    }),
    ("gateway-handshakes", |effort, page| {
        page.all_compared(gateway::handshakes(effort))
    }),
    ("gateway-siege", |effort, page| {
        page.compared(gateway::one_user(effort))
    }),
    ("gateway-slow", |effort, page| {
        let (report, facts) = gateway::slow_tokens(effort)?;
        page.compared(Ok(report))?;
        page.counted("Requests on a connection that is there already", Ok(facts))
    }),
    ("gateway-bursts", |effort, page| {
        let (report, facts) = gateway::bursts(effort)?;
        page.compared(Ok(report))?;
        page.counted("Availability, as siege has it", Ok(facts))
    }),
    ("gateway-resumed", |effort, page| {
        page.counted("Resumed sessions", gateway::resumed(effort))
    }),
    ("gateway-waiting", |effort, page| {
        page.counted("Handshakes that wait", gateway::ten_thousand(effort))
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let measured = if let [channel::IN_READER, millis] = texts(&arguments)[..] {
        channel::in_reader(millis).map(|()| true)
    } else if let Some(options) = FigureOptions::read(arguments.into_iter()) {
        Ok(options.measure())
    } else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn texts(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn usage() -> String {
    let names: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
    format!(
        "usage: figures [--quick] [--only PART]... [FILE without extension]\n\
         parts: {}\ncards, broker, gateway: all whose names begin so",
        names.join(", ")
    )
}

/// The options of the command line.
struct FigureOptions {
    effort: Effort,
    only: Vec<String>,
    file: Option<PathBuf>,
}

impl FigureOptions {
    fn read(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            effort: THOROUGH,
            only: Vec::new(),
            file: None,
        };
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--quick" => options.effort = QUICK,
                "--only" => {
                    let only = arguments.next()?;
                    PARTS.iter().find(|(name, _)| means(&only, name))?;
                    options.only.push(only);
                }
                option if option.starts_with('-') => return None,
                file => options.file = Some(file.into()),
            }
        }
        Some(options)
    }

    /// Measures, prints and writes the requested parts; returns whether every goal was reached.
    fn measure(&self) -> bool {
        let mut page = Page::new();
        let wanted: Vec<_> = PARTS.iter().filter(|(name, _)| self.wants(name)).collect();
        let mut is_written = true;
        for (number, (name, part)) in wanted.iter().enumerate() {
            eprintln!("part {} of {}: {name}", number + 1, wanted.len());
            if let Err(error) = part(self.effort, &mut page) {
                page.lost(name, &error);
            }
            // All parts take two hours: an interruption loses only the current one.
            page.coming = wanted[number + 1..].iter().map(|(name, _)| *name).collect();
            let written = self.file.iter().try_for_each(|file| page.write(file));
            is_written = written
                .inspect_err(|error| eprintln!("the figures are not written: {error}"))
                .is_ok();
        }
        page.finish(self.file.as_deref());
        page.reached() && is_written
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| means(only, part))
    }
}

/// Whether `only` is this part or its group: `cards` includes `cards-8` and all the others.
fn means(only: &str, part: &str) -> bool {
    let rest = part.strip_prefix(only);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
