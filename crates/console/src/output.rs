//! Tables that fit the terminal, or JSON.

use std::fmt::Display;
use std::path::Path;

use anyhow::Context as _;
use hsmux_layout::terminal_width;
use serde::Serialize;

pub use hsmux_layout::Column;

/// Prints a table, or records if the terminal is too narrow for it.
pub fn table(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) {
    println!("{}", hsmux_layout::table(columns, rows, terminal_width()));
}

/// Prints names with their values, one a line.
pub fn record<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) {
    let cells = pairs
        .into_iter()
        .map(|(name, value)| (Column::prose(name), value));
    println!("{}", hsmux_layout::record(cells, terminal_width()));
}

/// Prints a document as text, or as a JSON string.
pub fn document(text: &str, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return json(&text);
    }
    print!("{text}");
    Ok(())
}

/// Prints JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints a measurement's report, and writes its page if requested.
pub fn report(
    report: &(impl Serialize + Display),
    as_json: bool,
    page: Option<&(&Path, String)>,
) -> anyhow::Result<()> {
    if let Some((file, html)) = page {
        std::fs::write(file, html).with_context(|| file.display().to_string())?;
    }
    if as_json {
        return json(report);
    }
    print!("{report}");
    if let Some((file, _)) = page {
        println!("report: {}", std::path::absolute(file)?.display());
    }
    Ok(())
}

/// Formats microseconds.
pub fn micros(us: u64) -> String {
    match us {
        0 => "-".into(),
        1..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}
