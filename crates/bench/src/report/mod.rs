//! Common parts of reports: head, rows of tables, and the self-contained page in light or dark colours.

pub mod cells;
pub mod chart;
mod head;
pub mod measured;
pub mod page;

pub use head::{Head, now};
