//! `hsmux doctor`.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use hsmux_daemon::doctor::{Finding, FoundToken, Level, examine};

use super::token::SlotRow;
use crate::context::Context;
use crate::exit::{Exit, message_of};
use crate::{output, progress};

/// Options of `hsmux doctor`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux doctor\n  \
    hsmux doctor --json\n\n\
    Exit code 3 if it finds an error. It shows no PIN to any token.")]
pub struct Doctor {}

impl Doctor {
    pub fn run(context: &Context) -> anyhow::Result<Exit> {
        let waiting = progress::spinner("looking at modules, tokens and the daemon");
        let findings = examine(&context.file(), &probe);
        waiting.finish_and_clear();
        if context.json {
            output::json(&findings)?;
        } else {
            findings.iter().for_each(print);
        }
        let wrong = findings
            .iter()
            .filter(|finding| finding.level != Level::Note)
            .count();
        if wrong == 0 {
            if !context.json {
                println!("nothing is wrong");
            }
            return Ok(Exit::Done);
        }
        Ok(Exit::Degraded)
    }
}

fn print(finding: &Finding) {
    let level = match finding.level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    println!("{level}: {}: {}", finding.about, finding.problem);
    println!("    {}", finding.advice);
}

/// Lists a module's tokens in a child process, because the module may crash.
fn probe(module: &Path, environment: &[(String, String)]) -> Result<Vec<FoundToken>, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let listed = Command::new(program)
        .args(["token", "list", "--json", "--module"])
        .arg(module)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr);
        return Err(match listed.status.code() {
            Some(_) => message_of(&said).unwrap_or_else(|| said.trim().to_owned()),
            None => format!("it crashes ({})", listed.status),
        });
    }
    let rows: Vec<SlotRow> = serde_json::from_slice(&listed.stdout).map_err(|e| e.to_string())?;
    Ok(rows.into_iter().map(FoundToken::from).collect())
}
