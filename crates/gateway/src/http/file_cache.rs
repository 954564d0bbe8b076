//! Cache of short files, with the heads of their answers. Only the file's metadata are read for each request, to see
//! whether it has changed.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::HeaderMap;
use parking_lot::RwLock;

/// Longer files are not cached.
const LONGEST: usize = 64 << 10;

/// Limit of all files together, in bytes.
const MOST: usize = 16 << 20;

/// Approximate bytes of an entry besides its path and content.
const ENTRY: usize = 1 << 10;

/// Files that were changed more recently are not cached. Two changes within one tick of the kernel's clock have the
/// same time, so that the second one would not be seen.
const SETTLED: Duration = Duration::from_secs(2);

/// The cache.
#[derive(Default)]
pub struct FileCache(RwLock<CacheEntries>);

#[derive(Default)]
struct CacheEntries {
    /// By folder, then by the path of the request.
    folders: HashMap<PathBuf, HashMap<String, Arc<CachedFile>>>,
    bytes: usize,
}

/// A file, and the head of its answer.
pub struct CachedFile {
    pub file: PathBuf,
    pub metadata: Metadata,
    pub head: HeaderMap,
    pub bytes: Bytes,
    /// Whether the file's metadata can be read without another thread.
    pub is_local: bool,
}

impl CachedFile {
    /// Whether the file is unchanged. Reads its metadata.
    pub fn is_current(&self) -> bool {
        std::fs::metadata(&self.file).is_ok_and(|now| state(&now) == state(&self.metadata))
    }
}

/// Whether a file with these metadata can be cached.
pub fn is_cacheable(file: &Metadata) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let limit = now.unwrap_or_default().saturating_sub(SETTLED).as_secs();
    file.is_file() && file.len() <= LONGEST as u64 && file.ctime() < limit.cast_signed()
}

/// Identity and version of a file.
fn state(file: &Metadata) -> [u64; 5] {
    let (seconds, nanos) = (file.ctime(), file.ctime_nsec());
    let changed = [seconds.cast_unsigned(), nanos.cast_unsigned()];
    [file.dev(), file.ino(), file.len(), changed[0], changed[1]]
}

impl FileCache {
    /// The cached file for this path. The caller has to check whether it is current.
    pub fn get(&self, folder: &Path, path: &str) -> Option<Arc<CachedFile>> {
        let all = self.0.read();
        all.folders.get(folder)?.get(path).map(Arc::clone)
    }

    /// Adds a file. Its metadata have to be older than its content. A full cache is emptied first.
    pub fn put(&self, folder: &Path, path: String, page: CachedFile) {
        let size = ENTRY + path.len() + page.bytes.len();
        let mut all = self.0.write();
        if all.bytes + size > MOST {
            *all = CacheEntries::default();
        }
        all.bytes += size;
        let length = path.len();
        let in_folder = all.folders.entry(folder.to_owned()).or_default();
        if let Some(old) = in_folder.insert(path, Arc::new(page)) {
            all.bytes -= ENTRY + length + old.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn cached_file(file: &Path, bytes: impl Into<Bytes>) -> CachedFile {
        CachedFile {
            file: file.to_owned(),
            metadata: fs::metadata(file).unwrap(),
            head: HeaderMap::new(),
            bytes: bytes.into(),
            is_local: true,
        }
    }

    #[test]
    fn a_changed_or_replaced_file_is_not_current() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, file) = (folder.path(), folder.path().join("page"));
        let cache = FileCache::default();
        let get = || {
            let page = cache
                .get(folder, "/page")
                .filter(|page| page.is_current())?;
            Some(page.bytes.clone())
        };
        let put =
            |bytes: &'static str| cache.put(folder, "/page".into(), cached_file(&file, bytes));
        fs::write(&file, "one").unwrap();
        put("one");
        assert_eq!(get().unwrap(), "one");
        fs::write(folder.join("other"), "two").unwrap();
        fs::rename(folder.join("other"), &file).unwrap();
        assert_eq!(get(), None);
        put("two");
        assert_eq!(get().unwrap(), "two");
        fs::write(&file, "longer").unwrap();
        assert_eq!(get(), None);
        put("longer");
        assert_eq!(cache.get(folder, "/").map(|page| page.bytes.len()), None);
        fs::remove_file(&file).unwrap();
        assert_eq!(get(), None);
    }

    #[test]
    fn recently_changed_and_long_files_are_not_cacheable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page");
        fs::write(&file, "one").unwrap();
        assert!(!is_cacheable(&fs::metadata(&file).unwrap()));
        assert!(!is_cacheable(&fs::metadata("/usr").unwrap()));
        let long = fs::metadata("/bin/bash").unwrap();
        assert!(long.len() > LONGEST as u64 && !is_cacheable(&long));
        let settled = fs::metadata("/etc/passwd").unwrap();
        assert!(is_cacheable(&settled), "{settled:?}");
    }

    #[test]
    fn the_cache_has_a_limit() {
        let file = Path::new("/proc/self/exe");
        let cache = FileCache::default();
        for n in 0..2 * MOST / LONGEST {
            for _ in 0..2 {
                cache.put(
                    Path::new("/"),
                    format!("/{n:04}"),
                    cached_file(file, vec![0; LONGEST]),
                );
            }
            let all = cache.0.read();
            let there = all.folders[Path::new("/")].len() * (ENTRY + 5 + LONGEST);
            assert_eq!(all.bytes, there);
            assert!(there <= MOST);
        }
    }
}
