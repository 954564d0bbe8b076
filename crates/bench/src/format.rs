//! Formats numbers and tables.

use hsmux_layout::{Column, paragraph, terminal_width};

/// The maximum width of reports.
const WIDTH: usize = 80;

/// `850 us`, `12.3 ms`, `1.20 s`; three digits.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", three(us)),
        us if us < 1e6 => format!("{} ms", three(us / 1e3)),
        us => format!("{} s", three(us / 1e6)),
    }
}

/// `12.3 MB`, of 10^6 bytes.
pub fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b < 1e6 => format!("{} kB", three(b / 1e3)),
        b if b < 1e9 => format!("{} MB", three(b / 1e6)),
        b => format!("{} GB", three(b / 1e9)),
    }
}

/// `12,345/s`, `4.12/s`.
pub fn rate(per_second: f64) -> String {
    if per_second < 1000.0 {
        format!("{}/s", three(per_second))
    } else {
        format!("{}/s", count(whole(per_second)))
    }
}

/// `12,345`, `0.5`: a number on an axis.
pub fn plain(number: f64) -> String {
    if number.abs() >= 1e3 {
        return count(whole(number));
    }
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The nearest integer; negative numbers become 0.
#[allow(clippy::cast_sign_loss)] // A cast of floats saturates, and that is what is wanted.
pub fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits, or all before the decimal point.
pub fn three(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.places$}")
}

/// The width of reports: that of the terminal, at most 80 columns.
pub fn width() -> usize {
    terminal_width().min(WIDTH)
}

/// Breaks a text between words; a longer word has its own line.
pub fn lines(text: &str) -> String {
    paragraph(text, width())
}

/// A table that fits the terminal, at most 80 columns. All cells but the first are numbers.
pub fn table<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    wide_table(&heads, rows)
}

/// The same with any number of columns.
pub fn wide_table(
    heads: &[impl ToString],
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let mut heads = heads.iter().map(ToString::to_string);
    let first = heads.next().map(Column::prose);
    let columns: Vec<_> = first.into_iter().chain(heads.map(Column::number)).collect();
    hsmux_layout::table(&columns, rows, width())
}

/// A table of one row of numbers.
pub fn figures<const N: usize>(heads: [&str; N], row: [String; N]) -> String {
    hsmux_layout::table(&heads.map(Column::number), [row], width())
}

/// Names with their values, one a line.
pub fn record<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let cells = pairs
        .into_iter()
        .map(|(name, value)| (Column::prose(name), value));
    hsmux_layout::record(cells, width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(
            [micros(0.5), micros(99.96), micros(850.4)],
            ["0.50 us", "100 us", "850 us"]
        );
        assert_eq!(
            [micros(12_340.0), micros(1_200_000.0)],
            ["12.3 ms", "1.20 s"]
        );
        assert_eq!([bytes(12_300_000), bytes(4096)], ["12.3 MB", "4.10 kB"]);
        assert_eq!([rate(4.123), rate(12_345.4)], ["4.12/s", "12,345/s"]);
        assert_eq!(
            [count(7), count(123), count(1_234_567)],
            ["7", "123", "1,234,567"]
        );
    }
}
