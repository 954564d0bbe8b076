//! Changes of files, found without reading them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Times of change, sizes and inodes of some files: equal if none of them has changed. Two changes within one tick of
/// the kernel's clock that leave the size alike look like one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileVersions(Vec<Option<[i64; 4]>>);

impl FileVersions {
    /// As they are now. A file may be absent.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let state = |file: &Path| {
            let of = std::fs::metadata(file).ok()?;
            let (size, inode) = (of.size().cast_signed(), of.ino().cast_signed());
            Some([of.ctime(), of.ctime_nsec(), size, inode])
        };
        Self(files.into_iter().map(state).collect())
    }

    /// True if all changes are older than this. A reader may have missed a younger one.
    pub fn is_older_than(&self, age: Duration) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let limit = now.unwrap_or_default().saturating_sub(age);
        let limit = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        self.0
            .iter()
            .flatten()
            .all(|[changed, ..]| *changed < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_changes_comes_or_goes_has_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let now = || FileVersions::of([&*file]);
        let absent = now();
        assert_eq!(absent, now());
        fs::write(&file, "a").unwrap();
        let there = now();
        assert_ne!(absent, there);
        fs::write(&file, "ab").unwrap();
        assert_ne!(there, now());
        assert!(!now().is_older_than(Duration::from_secs(10)));
        let long_ago = FileVersions(vec![Some([1_000_000, 0, 2, 1]), None]);
        assert!(long_ago.is_older_than(Duration::from_secs(10)));
        fs::remove_file(&file).unwrap();
        assert_eq!(absent, now());
    }
}
