//! Folders: private ones, and names in them that survive a power loss.

use std::fs::{DirBuilder, File};
use std::io::Result;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use hsmux_token::give_to_the_owner_of_the_folder;

/// Creates a folder, and those above it, which only its owner may enter. One that is there keeps its mode. If root does
/// it, the folder belongs to the owner of the one above.
pub fn private_folder(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    give_to_the_owner_of_the_folder(&File::open(folder)?, folder);
    Ok(())
}

/// Makes what was created, renamed or removed in a folder last (fsync(2)).
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// The same for the folder of a file.
pub fn sync_parent(file: &Path) -> Result<()> {
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    sync_folder(parent.unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn nobody_else_enters_a_private_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        private_folder(&inner).unwrap();
        for made in [&inner, inner.parent().unwrap()] {
            assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o700);
        }
        private_folder(&inner).unwrap();
    }

    #[test]
    fn a_name_without_a_folder_is_in_this_one() {
        sync_parent(Path::new("Cargo.toml")).unwrap();
        assert!(sync_parent(Path::new("nowhere/file")).is_err());
    }
}
