//! Files that must not be lost, and that only their owner may read.

use std::path::Path;

use anyhow::Context as _;

/// Writes a new file that only its owner may read; never replaces an existing one.
pub fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    hsmux_state::create_new(file, content, 0o600)
        .with_context(|| format!("{}: not written", file.display()))
}
