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

use super::file_cache::is_cacheable;
use super::parts::Parts;
use super::reads::{Reads, is_local};

/// Longer files are read on another thread.
const SHORT: u64 = 1 << 20;

/// The backend of `ServeDir` for one request. It opens files within the process's budget.
#[derive(Clone)]
pub struct Files {
    budget: FileBudget,
    reads: Reads,
    /// Whether the folder is on a local disk.
    local: bool,
    /// The file that was read as a whole, if it may go to the cache.
    read: Option<Arc<Mutex<Option<Whole>>>>,
}

/// A file that was read as a whole.
pub struct Whole {
    pub file: PathBuf,
    /// Its metadata from before it was read.
    pub metadata: Metadata,
    pub bytes: Bytes,
    /// Whether its metadata can be read without another thread.
    pub is_local: bool,
}

/// An open file.
pub struct Open {
    metadata: Metadata,
    read: Reading,
    _permit: FilePermit,
}

enum Reading {
    Done(Cursor<Bytes>),
    Here(std::fs::File),
    Parts(Parts),
}

impl Files {
    /// A backend for one request. `keep`: the file may go to the cache.
    pub fn new(budget: &FileBudget, reads: Reads, local: bool, keep: bool) -> Self {
        Self {
            budget: budget.clone(),
            reads,
            local,
            read: keep.then(Arc::default),
        }
    }

    /// The file that was read, if it can go to the cache.
    pub fn read(self) -> Option<Whole> {
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
    ) -> io::Result<Open> {
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
                *keep.lock() = Some(Whole {
                    file: path,
                    metadata: metadata.clone(),
                    bytes: bytes.clone(),
                    is_local: here || is_local(&file),
                });
                Reading::Done(Cursor::new(bytes))
            }
            _ if here && metadata.len() <= SHORT => Reading::Here(file),
            _ => {
                let reads = (!here).then(|| self.reads.clone());
                Reading::Parts(Parts::new(file, metadata.len(), reads))
            }
        };
        Ok(Open {
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
type Coming<T> = Either<Ready<io::Result<T>>, Pin<Box<dyn Future<Output = io::Result<T>> + Send>>>;

fn here<T>(result: io::Result<T>) -> Coming<T> {
    Either::Left(ready(result))
}

impl Backend for Files {
    type File = Open;
    type Metadata = Metadata;
    type OpenFuture = Coming<Open>;
    type MetadataFuture = Coming<Metadata>;

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

impl File for Open {
    type Metadata = Metadata;
    type MetadataFuture<'a> = Ready<io::Result<Metadata>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        ready(Ok(self.metadata.clone()))
    }
}

impl AsyncRead for Open {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.read {
            Reading::Done(bytes) => Pin::new(bytes).poll_read(context, buffer),
            Reading::Here(file) => {
                // Initializes no more than the file has, and a byte to see its end.
                let length = usize::try_from(this.metadata.len()).unwrap_or(usize::MAX);
                let most = buffer.remaining().min(length.saturating_add(1));
                let read = file.read(buffer.initialize_unfilled_to(most))?;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
            Reading::Parts(parts) => parts.poll_read(context, buffer),
        }
    }
}

impl AsyncSeek for Open {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        match &mut self.get_mut().read {
            Reading::Done(bytes) => bytes.seek(position).map(drop),
            Reading::Here(file) => file.seek(position).map(drop),
            Reading::Parts(parts) => parts.seek(position),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.get_mut().read {
            Reading::Done(bytes) => Poll::Ready(Ok(bytes.position())),
            Reading::Here(file) => Poll::Ready(file.stream_position()),
            Reading::Parts(parts) => Poll::Ready(Ok(parts.position())),
        }
    }
}
