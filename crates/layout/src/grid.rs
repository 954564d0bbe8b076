//! A table in columns.

use crate::{Column, ColumnKind, columns_of, wrap};

/// Spaces between two columns: the wider gap if there is room.
const GAPS: [usize; 2] = [2, 1];

/// `None` if it does not fit. Each column has its position in the rows.
pub fn render(columns: &[(usize, &Column)], rows: &[Vec<String>], width: usize) -> Option<String> {
    let least = sizes(columns, rows, least);
    let natural = sizes(columns, rows, natural);
    let (gap, widths) = GAPS
        .into_iter()
        .find_map(|gap| Some((gap, arrange(&least, &natural, gap, width)?)))?;
    let heads = columns.iter().zip(&widths).map(|((_, column), &width)| {
        let lines = wrap(&column.head, width);
        (*column, width, lines)
    });
    let mut lines = line_up(&heads.collect::<Vec<_>>(), gap);
    for row in rows {
        let cells = columns.iter().zip(&widths).map(|((at, column), &width)| {
            let lines = column.wrap(&row[*at], width);
            (*column, width, lines)
        });
        lines.extend(line_up(&cells.collect::<Vec<_>>(), gap));
    }
    Some(lines.join("\n"))
}

/// The lines of a row.
fn line_up(cells: &[(&Column, usize, Vec<String>)], gap: usize) -> Vec<String> {
    let height = cells.iter().map(|(_, _, lines)| lines.len()).max();
    let line = |number: usize| {
        let parts: Vec<_> = cells
            .iter()
            .map(|(column, width, lines)| {
                let text = lines.get(number).map_or("", String::as_str);
                let space = " ".repeat(width.saturating_sub(columns_of(text)));
                match column.kind {
                    ColumnKind::Number => space + text,
                    ColumnKind::Whole | ColumnKind::Prose => text.to_owned() + &space,
                }
            })
            .collect();
        parts.join(&" ".repeat(gap)).trim_end().to_owned()
    };
    (0..height.unwrap_or(0)).map(line).collect()
}

/// The width of each column: at least `least`, and up to `natural` while there is room.
pub fn arrange(least: &[usize], natural: &[usize], gap: usize, width: usize) -> Option<Vec<usize>> {
    let gaps = gap * least.len().saturating_sub(1);
    let room = width.checked_sub(gaps)?;
    let mut left = room.checked_sub(least.iter().sum())?;
    let mut widths = least.to_vec();
    while left > 0 {
        // The narrowest of the columns that lack space grow first.
        let short = (0..widths.len()).filter(|&at| widths[at] < natural[at]);
        let Some(narrowest) = short.min_by_key(|&at| widths[at]) else {
            break;
        };
        widths[narrowest] += 1;
        left -= 1;
    }
    Some(widths)
}

/// The maximum of `size` over the head and the cells of each column.
fn sizes(
    columns: &[(usize, &Column)],
    rows: &[Vec<String>],
    size: fn(ColumnKind, &str) -> usize,
) -> Vec<usize> {
    let of_column = |(at, column): &(usize, &Column)| {
        let cells = rows.iter().map(|row| size(column.kind, &row[*at]));
        cells.fold(size(ColumnKind::Prose, &column.head), usize::max)
    };
    columns.iter().map(of_column).collect()
}

/// The minimum width of a cell: its longest word, if it may be broken.
fn least(kind: ColumnKind, cell: &str) -> usize {
    match kind {
        ColumnKind::Prose => cell.split_whitespace().map(columns_of).max().unwrap_or(0),
        ColumnKind::Whole | ColumnKind::Number => columns_of(cell),
    }
}

fn natural(_: ColumnKind, cell: &str) -> usize {
    columns_of(cell)
}
