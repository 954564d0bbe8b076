//! Rows of tables, in text and HTML.

use crate::format::{bytes, count, micros, rate, three, whole};
use crate::{Latency, Process, ScalingRow};

/// The columns of [`process`].
pub const PROCESS: [&str; 5] = ["process", "pid", "CPU", "CPU time", "peak memory"];

/// The costs of a process.
pub fn process(process: &Process) -> [String; 5] {
    [
        process.name.clone(),
        process.pid.to_string(),
        format!("{} %", three(process.cpu_percent)),
        format!("{} s", three(process.cpu_s)),
        bytes(process.peak_memory_bytes),
    ]
}

/// One part of the latencies; `-` if nothing succeeded.
pub fn latency(of: Option<Latency>, part: fn(Latency) -> f64) -> String {
    of.map_or_else(|| "-".to_owned(), |latency| micros(part(latency)))
}

/// The columns of [`published`].
pub const PUBLISHED: [&str; 5] = ["key", "HSMs", "signatures", "duration", "rate"];

/// A published row; a rate that contradicts its row has a star.
pub fn published(row: &ScalingRow) -> [String; 5] {
    let star = if row.remark.is_some() { "*" } else { "" };
    [
        row.key.clone(),
        row.hsms.to_string(),
        count(u64::from(row.signatures)),
        format!("{} s", count(whole(row.duration_s))),
        format!("{}{star}", rate(row.per_second)),
    ]
}

/// The explanations of the stars.
pub fn remarks(rows: &[ScalingRow]) -> impl Iterator<Item = String> {
    rows.iter().filter_map(|row| {
        let remark = row.remark.as_ref()?;
        Some(format!("* {}, {} HSMs: {remark}", row.key, row.hsms))
    })
}
