//! The figures of the README, measured side by side in one run: `make bench`.
//!
//! Every variant is a process of its own that does the same with another module (`drive`, an example
//! of `hsmux-bench`), so that a direct call, the embedded pool, the daemon and `p11-kit server` are
//! compared by the same client. Variants take turns; only ratios are judged.

mod client;
mod daemon;
mod one_token;
mod scaling;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use hsmux_bench::compare;
use hsmux_token::Result;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(5, |text| {
        text.parse().expect("usage: figures [ROUNDS [FILE]]")
    });
    let file = arguments.next().map(PathBuf::from);
    match measure(rounds) {
        Ok((text, reached)) => {
            if let Some(file) = file {
                std::fs::write(&file, text).expect("write the results");
                println!("written to {}", file.display());
            }
            println!(
                "{}",
                if reached {
                    "every figure is reached"
                } else {
                    "NOT every figure is reached"
                }
            );
            if reached {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All groups, one after the other; the text of the page, and whether every goal was reached.
fn measure(rounds: usize) -> Result<(String, bool)> {
    let mut page = Page {
        text: "# Figures\n\nWritten by `make bench`.\n".to_owned(),
        reached: true,
    };
    page.add(&one_token::embedded(rounds)?);
    page.add(&one_token::through_the_daemon(rounds)?);
    page.add(&scaling::many_members(rounds)?);
    page.add(&scaling::unequal_members(rounds)?);
    let footprint = daemon::footprint()?;
    println!("{footprint}");
    page.reached &= footprint.reached();
    write!(page.text, "\n```text\n{footprint}```\n").expect("a string");
    Ok((page.text, page.reached))
}

struct Page {
    text: String,
    reached: bool,
}

impl Page {
    fn add(&mut self, report: &compare::Report) {
        println!("{report}");
        self.reached &= report.reached();
        write!(self.text, "\n```text\n{report}```\n").expect("a string");
    }
}

/// Says on standard error whose turn it is.
fn turn(round: usize, name: &str) {
    eprintln!("round {}: {name}", round + 1);
}
