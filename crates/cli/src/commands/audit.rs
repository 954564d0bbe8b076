//! `hsmux audit`.

mod key;
mod verify;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux audit`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        hsmux audit                   # the last 20 lines\n  \
        hsmux audit --lines 1000 --json\n  \
        hsmux audit verify            # whether every line is as it was written"
)]
pub struct Audit {
    /// The number of lines from the end
    #[arg(long, default_value_t = 20)]
    lines: usize,
    #[command(subcommand)]
    command: Option<AuditCommand>,
}

#[derive(Subcommand, Debug)]
enum AuditCommand {
    /// Verify that every line is present and unchanged
    Verify(verify::Verify),
    /// Print the public key that verifies the trail
    Key(key::AuditKeyCommand),
}

impl Audit {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Some(AuditCommand::Verify(command)) => command.run(context),
            Some(AuditCommand::Key(command)) => command.run(context),
            None => show(context, self.lines),
        }
    }
}

fn show(context: &Context, count: usize) -> anyhow::Result<Exit> {
    let file = context.load()?.audit.file;
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("audit trail {}", file.display()))
        .map_err(|error| {
            if file.exists() {
                return error;
            }
            error.context("there is no trail before the daemon starts: hsmux serve")
        })?;
    let last = text.lines().rev();
    if context.json {
        let mut lines: Vec<_> = last.take(count).collect();
        lines.reverse();
        for line in lines {
            println!("{line}");
        }
        return Ok(Exit::Done);
    }
    // Checkpoints are only for verification.
    let events = last
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["checkpoint"].is_null());
    let mut lines: Vec<_> = events.take(count).collect();
    lines.reverse();
    let columns = [
        output::Column::whole("TIME"),
        output::Column::prose("WHO"),
        output::Column::prose("PROGRAM"),
        output::Column::prose("WHAT"),
        output::Column::prose("OUTCOME"),
    ];
    output::table(&columns, lines.iter().map(row));
    Ok(Exit::Done)
}

fn row(line: &Value) -> Vec<String> {
    let field = |name: &str| match &line[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => String::new(),
        other => other.to_string(),
    };
    let all = |names: &[&str]| -> Vec<String> {
        let fields = names.iter().map(|name| field(name));
        fields.filter(|word| !word.is_empty()).collect()
    };
    let what = [
        "act",
        "call",
        "token",
        "tokens",
        "card",
        "key",
        "label",
        "spec",
        "mechanism",
        "gap",
    ];
    let time = field("time");
    // Without microseconds.
    let seconds = match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time,
    };
    vec![
        seconds,
        all(&["uid", "actor"]).join(" "),
        all(&["program", "peer"]).join(" "),
        all(&what).join(" "),
        field("outcome"),
    ]
}
