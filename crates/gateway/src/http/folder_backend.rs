//! Files of a folder. Short files on local disks are read on the serving thread, as web servers do: they are in the
//! page cache, and a switch to another thread costs more than the read. All others are read on threads for blocking
//! work.

use std::fs::Metadata;
use std::future::{Future, Ready, ready};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tokio_util::either::Either;
use tower_http::services::fs::{Backend, File};

use crate::file_budget::{FileBudget, FilePermit};

use super::blocking_reads::{FolderReads, is_local};
use super::file_cache::is_cacheable;
use super::file_reader::FileReader;

/// Longer files are read on another thread.
const SHORT: u64 = 1 << 20;

/// The backend of `ServeDir` for one request. It opens files within the process's budget.
#[derive(Clone)]
pub struct FolderBackend {
    budget: FileBudget,
    reads: FolderReads,
    /// Whether the folder is on a local disk.
    local: bool,
    /// The file that was read as a whole, if it may go to the cache.
    read: Option<Arc<Mutex<Option<WholeFile>>>>,
}

/// A file that was read as a whole.
pub struct WholeFile {
    pub file: PathBuf,
    /// Its metadata from before it was read.
    pub metadata: Metadata,
    pub bytes: Bytes,
    /// Whether its metadata can be read without another thread.
    pub is_local: bool,
}

/// An open file.
pub struct OpenFile {
    metadata: Metadata,
    read: FileContent,
    _permit: FilePermit,
}

enum FileContent {
    Memory(Cursor<Bytes>),
    Local(std::fs::File),
    Reader(FileReader),
}

impl FolderBackend {
    /// A backend for one request. `keep`: the file may go to the cache.
    pub fn new(budget: &FileBudget, reads: FolderReads, local: bool, keep: bool) -> Self {
        Self {
            budget: budget.clone(),
            reads,
            local,
            read: keep.then(Arc::default),
        }
    }

    /// The file that was read, if it can go to the cache.
    pub fn read(self) -> Option<WholeFile> {
        self.read?.lock().take()
    }

    fn permit(&self) -> io::Result<FilePermit> {
        self.budget.for_backend().ok_or_else(|| Errno::MFILE.into())
    }

    /// Prepares an open file. `here`: it is local, so any thread may call this; else not the runtime's.
    fn found(
        &self,
        path: PathBuf,
        mut file: std::fs::File,
        permit: FilePermit,
        here: bool,
    ) -> io::Result<OpenFile> {
        let metadata = file.metadata()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let keep = self.read.as_ref().filter(|_| is_cacheable(&metadata));
        let bytes = match keep {
            Some(_) => whole(&mut file, metadata.len())?,
            None => None,
        };
        let read = match (keep, bytes) {
            (Some(keep), Some(bytes)) => {
                *keep.lock() = Some(WholeFile {
                    file: path,
                    metadata: metadata.clone(),
                    bytes: bytes.clone(),
                    is_local: here || is_local(&file),
                });
                FileContent::Memory(Cursor::new(bytes))
            }
            _ if here && metadata.len() <= SHORT => FileContent::Local(file),
            _ => {
                let reads = (!here).then(|| self.reads.clone());
                FileContent::Reader(FileReader::new(file, metadata.len(), reads))
            }
        };
        Ok(OpenFile {
            metadata,
            read,
            _permit: permit,
        })
    }

    /// Opens a path on the folder's own disk. `None`: it has to be opened on another thread, or that one finds the
    /// error.
    fn open_here(&self, path: &Path, flags: OFlags) -> Option<io::Result<std::fs::File>> {
        if !self.local {
            return None;
        }
        let folder = self.reads.folder();
        let within = path.strip_prefix(folder).ok()?;
        let within = if within.as_os_str().is_empty() {
            Path::new(".")
        } else {
            within
        };
        let of_folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, of_folder, Mode::empty()).ok()?;
        let flags = flags | OFlags::CLOEXEC;
        match openat2(folder, within, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            Ok(file) => Some(Ok(file.into())),
            Err(Errno::NOENT) => Some(Err(Errno::NOENT.into())),
            Err(_) => None,
        }
    }
}

/// O_NONBLOCK: opening a FIFO does not wait for its other end.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

fn open(path: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::File::options();
    let flags = READING.bits().cast_signed();
    let options = options.read(true).custom_flags(flags);
    options.open(path).map_err(absent)
}

/// Reads a whole file. `None`: its length has changed meanwhile.
fn whole(file: &mut std::fs::File, length: u64) -> io::Result<Option<Bytes>> {
    let mut bytes = Vec::with_capacity(length as usize + 1);
    file.take(length + 1).read_to_end(&mut bytes)?;
    file.rewind()?;
    Ok((bytes.len() as u64 == length).then(|| bytes.into()))
}

/// Maps invalid paths to "not found": too long, a loop of links, or a zero byte.
fn absent(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput => {
            io::ErrorKind::NotFound.into()
        }
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            io::ErrorKind::NotFound.into()
        }
        _ => error,
    }
}

/// A result that is there at once, or comes from another thread.
type FileFuture<T> =
    Either<Ready<io::Result<T>>, Pin<Box<dyn Future<Output = io::Result<T>> + Send>>>;

fn here<T>(result: io::Result<T>) -> FileFuture<T> {
    Either::Left(ready(result))
}

impl Backend for FolderBackend {
    type File = OpenFile;
    type Metadata = Metadata;
    type OpenFuture = FileFuture<OpenFile>;
    type MetadataFuture = FileFuture<Metadata>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        let permit = match self.permit() {
            Ok(permit) => permit,
            Err(error) => return here(Err(error)),
        };
        if let Some(opened) = self.open_here(&path, READING) {
            return here(opened.and_then(|file| self.found(path, file, permit, true)));
        }
        let (this, reads) = (self.clone(), self.reads.clone());
        let find = move || this.found(path.clone(), open(&path)?, permit, false);
        Either::Right(Box::pin(async move { reads.run(find).await }))
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        if let Some(opened) = self.open_here(&path, OFlags::PATH) {
            return here(opened.and_then(|file| file.metadata()));
        }
        let reads = self.reads.clone();
        let look = move || std::fs::metadata(path).map_err(absent);
        Either::Right(Box::pin(async move { reads.run(look).await }))
    }
}

impl File for OpenFile {
    type Metadata = Metadata;
    type MetadataFuture<'a> = Ready<io::Result<Metadata>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        ready(Ok(self.metadata.clone()))
    }
}

impl AsyncRead for OpenFile {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.read {
            FileContent::Memory(bytes) => Pin::new(bytes).poll_read(context, buffer),
            FileContent::Local(file) => {
                // Initializes no more than the file has, and a byte to see its end.
                let length = usize::try_from(this.metadata.len()).unwrap_or(usize::MAX);
                let most = buffer.remaining().min(length.saturating_add(1));
                let read = file.read(buffer.initialize_unfilled_to(most))?;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
            FileContent::Reader(reader) => reader.poll_read(context, buffer),
        }
    }
}

impl AsyncSeek for OpenFile {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        match &mut self.get_mut().read {
            FileContent::Memory(bytes) => bytes.seek(position).map(drop),
            FileContent::Local(file) => file.seek(position).map(drop),
            FileContent::Reader(reader) => reader.seek(position),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.get_mut().read {
            FileContent::Memory(bytes) => Poll::Ready(Ok(bytes.position())),
            FileContent::Local(file) => Poll::Ready(file.stream_position()),
            FileContent::Reader(reader) => Poll::Ready(Ok(reader.position())),
        }
    }
}
