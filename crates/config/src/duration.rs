//! Durations with their units.

use std::time::Duration;

/// Parses `30s`, `500ms`, `2m` or `1h`, within the range of keys without one of their own.
pub fn read(text: &str) -> Result<Duration, String> {
    within(text, "1ms", "24h")
}

/// Parses a duration within this range.
pub fn within(text: &str, least: &str, most: &str) -> Result<Duration, String> {
    let given = time(text)?;
    if (time(least)?..=time(most)?).contains(&given) {
        return Ok(given);
    }
    Err(format!("{text:?} is not from {least} to {most}"))
}

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: a number and ms, s, m or h");
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.trim_start() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_millis(number.saturating_mul(unit)))
}
