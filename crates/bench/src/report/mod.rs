//! What all reports share: their head, the rows of their tables, and the page: one self-contained file,
//! light or dark as its reader likes.

pub mod cells;
pub mod chart;
mod head;
pub mod measured;
pub mod page;

pub use head::{Head, now};
