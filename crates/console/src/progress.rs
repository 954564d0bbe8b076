//! A sign of life for what takes long.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A spinner with the time that has gone, on a terminal only; it goes with the answer.
pub fn spinner(message: impl Into<String>) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    let bar = ProgressBar::new_spinner().with_message(message.into());
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A bar over the bytes of files, with an estimate of what is left.
pub fn bytes(count: u64, message: impl Into<String>) -> ProgressBar {
    styled(
        count,
        message,
        "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left",
    )
}

/// A bar over so many things, with an estimate of what is left.
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
