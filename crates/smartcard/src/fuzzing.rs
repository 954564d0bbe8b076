//! Entry for fuzz targets: what is behind a MAC or a hash, which no fuzzer guesses.

pub use crate::dkek::wrap_clear_text;
pub use crate::provision::backup::parse_content;
