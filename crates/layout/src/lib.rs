//! Tables and paragraphs that fit the terminal. Numbers, ids and names are never broken, so that they can be copied.
//! A table that is too wide becomes records: one line for each cell. This crate prints nothing.

#![warn(missing_docs)]

mod grid;
mod records;
#[cfg(test)]
mod tests;

use unicode_width::UnicodeWidthStr;

/// The width without a terminal.
const WIDTH: u16 = 80;

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    head: String,
    kind: ColumnKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ColumnKind {
    Whole,
    Number,
    Prose,
}

impl Column {
    /// Ids, names and times: never broken.
    pub fn whole(head: impl Into<String>) -> Self {
        Self::new(head, ColumnKind::Whole)
    }

    /// Numbers with their units: never broken, and right-aligned.
    pub fn number(head: impl Into<String>) -> Self {
        Self::new(head, ColumnKind::Number)
    }

    /// Text that may be broken between words.
    pub fn prose(head: impl Into<String>) -> Self {
        Self::new(head, ColumnKind::Prose)
    }

    fn new(head: impl Into<String>, kind: ColumnKind) -> Self {
        let head = head.into();
        Self { head, kind }
    }

    /// The lines of a cell in this width. A word that is longer has a line of its own.
    fn wrap(&self, cell: &str, width: usize) -> Vec<String> {
        match self.kind {
            ColumnKind::Prose => wrap(cell, width),
            ColumnKind::Whole | ColumnKind::Number => vec![cell.to_owned()],
        }
    }
}

/// A table of this width without its empty columns, or records if it does not fit. The cells that a row lacks are empty.
pub fn table(
    columns: &[Column],
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
    width: usize,
) -> String {
    let cells = |row: Vec<String>| {
        let mut cells: Vec<_> = row.iter().map(|cell| printable(cell)).collect();
        cells.resize(columns.len(), String::new());
        cells
    };
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| cells(row.into_iter().collect()))
        .collect();
    let is_used = |at: usize| rows.is_empty() || rows.iter().any(|row| !row[at].is_empty());
    let columns: Vec<_> = columns
        .iter()
        .enumerate()
        .filter(|(at, _)| is_used(*at))
        .collect();
    grid::render(&columns, &rows, width).unwrap_or_else(|| records::render(&columns, &rows, width))
}

/// Names with their values, one a line. Empty values are left out.
pub fn record(cells: impl IntoIterator<Item = (Column, String)>, width: usize) -> String {
    let (columns, cells): (Vec<Column>, Vec<String>) = cells.into_iter().unzip();
    let columns: Vec<_> = columns.iter().enumerate().collect();
    let cells = cells.iter().map(|cell| printable(cell)).collect();
    records::render(&columns, &[cells], width)
}

/// The width from `COLUMNS`, else of the terminal at standard output, else 80.
pub fn terminal_width() -> usize {
    let set = std::env::var("COLUMNS")
        .ok()
        .and_then(|set| set.parse().ok());
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(size.ws_col)
    };
    let is_known = |width: &u16| *width > 0;
    let known = set.filter(is_known).or_else(|| terminal().filter(is_known));
    known.unwrap_or(WIDTH).into()
}

/// A paragraph, broken between words at this width. A word that is longer has a line of its own.
pub fn paragraph(text: &str, width: usize) -> String {
    wrap(text, width).join("\n")
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if columns_of(line) + 1 + columns_of(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The columns that a text takes on a terminal.
fn columns_of(text: &str) -> usize {
    text.width()
}

/// Labels come from tokens: control characters could write elsewhere on the screen.
fn printable(cell: &str) -> String {
    cell.replace(char::is_control, "?")
}
