//! Progress displays for long actions.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A spinner with the elapsed time, on a terminal only; removed at the end.
pub fn spinner(message: impl Into<String>) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    let bar = ProgressBar::new_spinner().with_message(message.into());
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A bar of bytes, with an estimate of the remaining time.
pub fn bytes(count: u64, message: impl Into<String>) -> ProgressBar {
    styled(
        count,
        message,
        "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left",
    )
}

/// A bar of items, with an estimate of the remaining time.
pub fn bar(count: u64, message: impl Into<String>) -> ProgressBar {
    styled(count, message, "{msg} {wide_bar} {pos}/{len}, {eta} left")
}

fn styled(count: u64, message: impl Into<String>, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(count).with_message(message.into());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
