//! Tables that fit a terminal of 80 columns, or JSON.

use std::fmt::Display;
use std::path::Path;

use anyhow::Context as _;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

/// Columns of a table, as wide as people's terminals are at least.
const WIDTH: u16 = 80;

/// Prints a table without lines.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for (column, name) in table.column_iter_mut().zip(header) {
        column.set_padding((0, 2));
        if *name == "id" {
            // To be copied: in one piece, however wide the table becomes.
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    for line in table.lines() {
        println!("{}", line.trim_end());
    }
}

/// Prints a document: as it is, or as one string of JSON.
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

/// Prints a measurement's report, and writes its page if there is to be one.
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

/// Microseconds for people.
pub fn micros(us: u64) -> String {
    match us {
        0 => "-".into(),
        1..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// Seconds after 1970 for people, in UTC.
pub fn time(seconds: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(at).to_string()
}
