//! Tables that fit the terminal, or JSON.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::Path;

use anyhow::Context as _;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

/// The width of a table without a terminal.
const WIDTH: u16 = 80;

/// Spaces between two columns.
const GAP: u16 = 2;

/// The minimum width of a column of ids: ids of 20 bytes can be copied in one piece.
const ID: u16 = 40;

/// Minimum widths of other columns, before and after ids are wrapped.
const READABLE: [u16; 2] = [8, 6];

/// Prints a table without lines.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    let id = header.iter().position(|name| *name == "id");
    let widths = arrange(&table.column_max_content_widths(), id, width());
    for (column, width) in table.column_iter_mut().zip(widths) {
        column.set_padding((0, GAP));
        let width = Width::Fixed(width.saturating_add(GAP));
        column.set_constraint(ColumnConstraint::Absolute(width));
    }
    for line in table.lines() {
        println!("{}", line.trim_end());
    }
}

/// The width from `COLUMNS` or the terminal.
fn width() -> u16 {
    let set = std::env::var("COLUMNS")
        .ok()
        .and_then(|set| set.parse().ok());
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(size.ws_col)
    };
    let is_known = |width: &u16| *width > 0;
    let known = set.filter(is_known).or_else(|| terminal().filter(is_known));
    known.unwrap_or(WIDTH)
}

/// The width of each column; `natural` are the widest contents. Other columns shrink before the column of ids.
/// If the minimum widths exceed `width`, the table is wider: nothing is cut.
fn arrange(natural: &[u16], id: Option<usize>, width: u16) -> Vec<u16> {
    let total = |widths: &[u16]| widths.iter().copied().fold(0, u16::saturating_add);
    let gaps =
        GAP.saturating_mul(u16::try_from(natural.len().saturating_sub(1)).unwrap_or(u16::MAX));
    let room = width.saturating_sub(gaps);
    let least = |of_id: u16, of_others: u16| -> Vec<u16> {
        let columns = natural.iter().enumerate();
        let least = columns
            .map(|(at, &natural)| natural.min(if Some(at) == id { of_id } else { of_others }));
        least.collect()
    };
    let [readable, narrow] = READABLE;
    let steps = [least(u16::MAX, readable), least(ID, readable)];
    let mut steps = steps.into_iter();
    let fitting = steps.find(|widths| total(widths) <= room);
    let mut widths = fitting.unwrap_or_else(|| least(ID, narrow));
    // The narrowest of the columns that lack space grow first.
    for _ in total(&widths)..room {
        let short = (0..natural.len()).filter(|&at| widths[at] < natural[at]);
        let Some(narrowest) = short.min_by_key(|&at| widths[at]) else {
            break;
        };
        widths[narrowest] += 1;
    }
    widths
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
