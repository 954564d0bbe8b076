//! Programs of hsmux that start each other.

use std::path::PathBuf;

use anyhow::Context as _;

/// The program `name` in the folder of this one; `user` is the command that needs it. `PATH` is not searched, because
/// root runs these programs and they read PIN files.
pub fn beside(name: &str, user: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program")?;
    let path = own.with_file_name(name);
    anyhow::ensure!(
        path.exists(),
        "{user} needs the program {name}, and {} does not exist. hsmux looks in its own folder only. To install {name} \
         there: `make build && sudo make install` in the source of hsmux",
        path.display()
    );
    Ok(path)
}
