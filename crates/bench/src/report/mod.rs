//! What the pages of all reports share: one self-contained file, light or dark as its reader likes.

pub mod chart;
pub mod page;
