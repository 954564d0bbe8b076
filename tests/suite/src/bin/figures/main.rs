//! The figures of the README, measured side by side in one run: `make bench`.
//!
//! Every variant is driven by a process of its own, `hsmux bench sign --direct MODULE`, so that direct
//! calls, the embedded pool, the daemon and `p11-kit server` are compared by the very same client.
//! Variants take turns; only ratios within a round are judged.

mod cards;
mod client;
mod footprint;
mod one_token;
mod page;
mod scaling;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hsmux_token::Result;

use page::Page;

/// How long all is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Turns of each variant.
    pub rounds: usize,
    /// One turn.
    pub turn: Duration,
    /// How long nobody calls, for the CPU of an idle daemon.
    pub idle: Duration,
}

const USAGE: &str = "usage: figures [--quick] [--only PART]... [FILE without extension]
parts: embedded, daemon, members, unequal, cards, footprint";

fn main() -> ExitCode {
    let Some(asked) = Asked::read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match asked.measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line.
struct Asked {
    effort: Effort,
    only: Vec<String>,
    file: Option<PathBuf>,
}

impl Asked {
    fn read(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut asked = Self {
            effort: Effort {
                rounds: 5,
                turn: Duration::from_secs(3),
                idle: Duration::from_secs(10),
            },
            only: Vec::new(),
            file: None,
        };
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--quick" => {
                    asked.effort.rounds = 3;
                    asked.effort.turn = Duration::from_secs(1);
                }
                "--only" => asked.only.push(arguments.next()?),
                option if option.starts_with('-') => return None,
                file => asked.file = Some(file.into()),
            }
        }
        Some(asked)
    }

    /// Measures what is asked for, shows and writes it; whether every goal was reached.
    fn measure(&self) -> Result<bool> {
        let effort = self.effort;
        let mut page = Page::new();
        if self.wants("embedded") {
            page.compared(one_token::embedded(effort)?);
        }
        if self.wants("daemon") {
            page.compared(one_token::through_the_daemon(effort)?);
        }
        if self.wants("members") {
            page.compared(scaling::many_members(effort)?);
        }
        if self.wants("unequal") {
            page.compared(scaling::unequal_members(effort)?);
        }
        if self.wants("cards") {
            page.compared(cards::eight(effort)?);
            page.compared(cards::sixteen(effort)?);
        }
        if self.wants("footprint") {
            page.weighed(footprint::footprint(effort)?);
        }
        page.finish(self.file.as_deref());
        Ok(page.reached())
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// Says on standard error whose turn it is.
fn turn(round: usize, name: &str) {
    eprintln!("round {}: {name}", round + 1);
}
