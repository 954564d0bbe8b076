//! The file of the trail: a block is written to it as a whole, or not at all.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsmux_token::give_to_the_owner_of_the_folder;

use crate::disk;

/// A file of the trail, open for appending.
pub struct TrailFile {
    path: PathBuf,
    pub file: File,
    len: u64,
    /// True if it does not end with a newline: the next block begins with one.
    broken_off: bool,
    /// True if a part of a failed block may be at its end.
    remains: bool,
}

/// Makes the name of a new file durable, where the folder can be read and synced.
fn sync_name(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    disk::sync_parent(path).or_else(|error| match error.kind() {
        InvalidInput | PermissionDenied | Unsupported => {
            tracing::warn!(%error, "a power cut may remove the new file {}", path.display());
            Ok(())
        }
        _ => Err(error),
    })
}

impl TrailFile {
    /// Opens it, or makes it (0600).
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = disk::open(path)?;
        give_to_the_owner_of_the_folder(&file, path);
        let metadata = file.metadata()?;
        let len = metadata.len();
        if len == 0 && metadata.is_file() {
            // A file without its name would be gone after a power cut, with all lines that were synced.
            sync_name(path)?;
        }
        let mut last = *b"\n";
        if len > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            len,
            broken_off: last != *b"\n",
            remains: false,
        })
    }

    /// Appends lines; with `sync` they are on disk when this returns. After an error none of them is in the file.
    pub fn append(&mut self, lines: &[u8], sync: bool) -> io::Result<()> {
        self.take_back()?;
        let written = self.write(lines, sync);
        if written.is_err() {
            self.remains = true;
            // If this fails as well, the next attempt begins with it.
            let _ = self.take_back();
        }
        written
    }

    fn write(&mut self, lines: &[u8], sync: bool) -> io::Result<()> {
        if self.broken_off && !lines.is_empty() {
            disk::append(&mut self.file, b"\n")?;
            self.len += 1;
            self.broken_off = false;
        }
        disk::append(&mut self.file, lines)?;
        if sync {
            disk::sync(&self.file)?;
        }
        self.len = self.file.metadata()?.len();
        Ok(())
    }

    /// When this returns, all its lines are on disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.take_back()?;
        disk::sync(&self.file)
    }

    fn take_back(&mut self) -> io::Result<()> {
        if self.remains && self.file.metadata()?.len() > self.len {
            disk::truncate(&self.file, self.len)?;
        }
        self.remains = false;
        Ok(())
    }

    /// True if the path still leads to this file, and all that was written is in it.
    pub fn is_in_place(&self) -> bool {
        let same = || {
            let (there, here) = (self.path.metadata()?, self.file.metadata()?);
            io::Result::Ok(
                (there.dev(), there.ino()) == (here.dev(), here.ino()) && here.len() >= self.len,
            )
        };
        same().unwrap_or(false)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trail");
        std::fs::write(&path, "torn").unwrap();
        let mut file = TrailFile::open(&path).unwrap();
        file.append(b"one\n", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"torn\none\n");
        assert_eq!(file.len(), 9);
        // As after an interrupted write.
        std::fs::write(&path, "torn\none\ntw").unwrap();
        file.remains = true;
        file.append(b"two\n", false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"torn\none\ntwo\n");
        assert!(file.is_in_place());
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        assert!(!file.is_in_place());
        std::fs::write(&path, "another").unwrap();
        assert!(!file.is_in_place());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut file = TrailFile::open(Path::new("/dev/full")).unwrap();
        for _ in 0..2 {
            let error = file.append(b"one\n", true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        }
    }
}
