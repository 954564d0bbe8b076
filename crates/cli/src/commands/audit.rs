//! `hsmux audit`.

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

/// Options of `hsmux audit`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hsmux audit                   # the last 20 lines\n  \
    hsmux audit --lines 1000 --json")]
pub struct Audit {
    /// How many of the last lines
    #[arg(long, default_value_t = 20)]
    lines: usize,
}

impl Audit {
    pub fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let file = context.load()?.audit.file;
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("audit trail {}", file.display()))?;
        let mut lines: Vec<_> = text.lines().rev().take(self.lines).collect();
        lines.reverse();
        if context.json {
            for line in lines {
                println!("{line}");
            }
            return Ok(Exit::Done);
        }
        let lines: Vec<Value> = lines
            .iter()
            .filter_map(|l| serde_json::from_str(l).ok())
            .collect();
        let header = ["time", "uid", "program", "what", "outcome"];
        output::table(&header, lines.iter().map(row));
        Ok(Exit::Done)
    }
}

fn row(line: &Value) -> Vec<String> {
    let field = |name: &str| match &line[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => String::new(),
        other => other.to_string(),
    };
    let words = [
        "act",
        "call",
        "token",
        "tokens",
        "key",
        "label",
        "spec",
        "mechanism",
    ];
    let what: Vec<_> = words
        .iter()
        .map(|name| field(name))
        .filter(|word| !word.is_empty())
        .collect();
    let time = field("time");
    let seconds = time.split('.').next().unwrap_or_default().to_owned();
    vec![
        seconds,
        field("uid"),
        field("program"),
        what.join(" "),
        field("outcome"),
    ]
}
