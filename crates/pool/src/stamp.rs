//! Whether files have changed, without reading them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells one state of some files from another: times of change, sizes and inodes. Two changes within
/// one tick of the kernel's clock that leave the size as it is look like one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stamp(Vec<Option<[i64; 4]>>);

impl Stamp {
    /// As they are now; one that is not there is a state, too.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let state = |file: &Path| {
            let of = std::fs::metadata(file).ok()?;
            let (size, inode) = (of.size().cast_signed(), of.ino().cast_signed());
            Some([of.ctime(), of.ctime_nsec(), size, inode])
        };
        Self(files.into_iter().map(state).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_changes_comes_or_goes_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let now = || Stamp::of([&*file]);
        let absent = now();
        assert_eq!(absent, now());
        fs::write(&file, "a").unwrap();
        let there = now();
        assert_ne!(absent, there);
        fs::write(&file, "ab").unwrap();
        assert_ne!(there, now());
        fs::remove_file(&file).unwrap();
        assert_eq!(absent, now());
    }
}
