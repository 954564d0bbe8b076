//! `hsmux bench`.

mod burn_in;
mod churn;
mod compare;
mod http;
mod matrix;
pub mod part;
mod process;
mod run;
mod scale;
mod sign;
pub mod target;
mod tls;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;

/// Measurements. Their JSON is described by docs/bench-schema.json.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// Evaluate signatures by one key: throughput, latencies, CPU and memory of every process
    Sign(Box<sign::Sign>),
    /// Measure throughput by the number of members
    Scale(scale::Scale),
    /// Make and verify signatures for hours; an interrupted run continues
    BurnIn(Box<burn_in::BurnIn>),
    /// Compare ways to the same token side by side, by their ratios
    Compare(compare::Compare),
    /// Load a service with the Transit API over HTTP: the broker, OpenBao, Vault
    Http(Box<http::Http>),
    /// Load a web server over TLS like siege, with a new connection and a full handshake for each hit
    Tls(Box<tls::Tls>),
    /// Measure a table of a web cluster's cells over TLS, beside published figures
    Matrix(matrix::Matrix),
    /// Measure the cost of key changes by other programs, beside published figures
    Churn(churn::Churn),
}

impl Bench {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Self::Sign(command) => command.run(context),
            Self::Scale(command) => command.run(context),
            Self::BurnIn(command) => command.run(context),
            Self::Compare(command) => command.run(context),
            Self::Http(command) => command.run(context),
            Self::Tls(command) => command.run(context),
            Self::Matrix(command) => command.run(context),
            Self::Churn(command) => command.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct BenchCli {
        #[command(subcommand)]
        bench: Bench,
    }

    fn parses(line: &str) -> bool {
        BenchCli::try_parse_from(line.split_whitespace()).is_ok()
    }

    /// `scale` always measures the daemon, and `compare` the targets of `--of`: neither has another target.
    #[test]
    fn an_option_that_would_change_nothing_does_not_parse() {
        let targets = [
            "--direct /m.so",
            "--direct /m.so --token pkcs11:token=a",
            "--embedded",
            "--pin env:PIN",
        ];
        for target in targets {
            for command in ["sign", "burn-in"] {
                let line = format!("bench {command} {target}");
                assert!(parses(&line), "{line}");
            }
            for command in ["scale", "compare"] {
                let line = format!("bench {command} {target}");
                assert!(!parses(&line), "{line}");
            }
        }
        for command in ["sign", "scale", "burn-in", "compare"] {
            assert!(parses(&format!("bench {command} --key pkcs11:object=web")));
        }
    }
}
