//! Files that must not be lost, and that nobody else should read.

use std::path::Path;

use anyhow::Context as _;

/// Writes a new file, readable by its owner only; one that is there already stays as it is.
pub fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    hsmux_state::create_new(file, content, 0o600)
        .with_context(|| format!("{}: not written", file.display()))
}
