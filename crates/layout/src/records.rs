//! A table that is too wide: a line for each cell, and an empty line after each row.

use crate::{Column, columns_of};

/// Spaces after the longest head.
const GAP: usize = 2;

/// Empty cells are left out. A cell that does not fit beside its head begins on the next line: an id of 20 bytes is
/// whole on a terminal of 40 columns.
pub fn render(columns: &[(usize, &Column)], rows: &[Vec<String>], width: usize) -> String {
    let heads = columns.iter().map(|(_, column)| columns_of(&head(column)));
    let indent = heads.max().unwrap_or(0) + GAP;
    let record = |row: &Vec<String>| {
        let cells = columns.iter().filter(|(at, _)| !row[*at].is_empty());
        let cells = cells.map(|(at, column)| cell(column, &row[*at], indent, width));
        cells.collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
}

fn cell(column: &Column, text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent);
    let lines = column.wrap(text, room);
    let head = head(column);
    if lines.iter().any(|line| columns_of(line) > room) {
        return format!("{head}\n{}", column.wrap(text, width).join("\n"));
    }
    let space = " ".repeat(indent - columns_of(&head));
    let further = format!("\n{}", " ".repeat(indent));
    format!("{head}{space}{}", lines.join(&further))
}

fn head(column: &Column) -> String {
    let words: Vec<_> = column.head.split_whitespace().collect();
    words.join(" ")
}
