//! A folder of files. Short ones are read at once on the thread that serves, as web servers do: they are in the
//! page cache, and each way to a thread for files and back costs more than the reading.

use std::fs::Metadata;
use std::future::{Ready, ready};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tower_http::services::fs::{Backend, File};

use crate::files::{self, Held};

use super::kept::is_worth_keeping;

/// What is longer is read elsewhere.
const SHORT: u64 = 1 << 20;

/// Where `ServeDir` has the files of one request from, as long as there may be more.
#[derive(Clone)]
pub struct Files {
    left: files::Files,
    /// What was read as a whole, where that is to be kept.
    read: Option<Arc<Mutex<Option<Whole>>>>,
}

/// A file, how it was before it was read, and what it has.
type Whole = (PathBuf, Metadata, Bytes);

/// An open file.
pub struct Open {
    metadata: Metadata,
    read: Reading,
    _held: Held,
}

enum Reading {
    Done(Cursor<Bytes>),
    Here(std::fs::File),
    Elsewhere(tokio::fs::File),
}

impl Files {
    /// For one request, whose file may be kept.
    pub fn new(left: &files::Files, keep: bool) -> Self {
        Self {
            left: left.clone(),
            read: keep.then(Arc::default),
        }
    }

    /// The file that was read, if it is worth keeping.
    pub fn read(self) -> Option<Whole> {
        self.read?.lock().take()
    }

    fn find(&self, path: PathBuf) -> io::Result<Open> {
        let held = self.left.behind().ok_or(Errno::MFILE)?;
        let mut open = Open::at(&path, held)?;
        if let Some(read) = &self.read
            && is_worth_keeping(&open.metadata)
            && let Some(bytes) = open.whole()?
        {
            open.read = Reading::Done(Cursor::new(bytes.clone()));
            *read.lock() = Some((path, open.metadata.clone(), bytes));
        }
        Ok(open)
    }
}

impl Open {
    /// All of a short file, unless it grows or shrinks just now.
    fn whole(&mut self) -> io::Result<Option<Bytes>> {
        let Reading::Here(file) = &mut self.read else {
            return Ok(None);
        };
        let length = self.metadata.len();
        let mut bytes = Vec::with_capacity(length as usize + 1);
        file.take(length + 1).read_to_end(&mut bytes)?;
        file.rewind()?;
        Ok((bytes.len() as u64 == length).then(|| bytes.into()))
    }

    fn at(path: &Path, held: Held) -> io::Result<Self> {
        // Nobody waits for the other end of a FIFO.
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)
            .map_err(absent)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let read = if metadata.len() <= SHORT {
            Reading::Here(file)
        } else {
            Reading::Elsewhere(tokio::fs::File::from_std(file))
        };
        Ok(Self {
            metadata,
            read,
            _held: held,
        })
    }
}

/// There is no file whose path the system does not take: too long, in circles, or with a zero byte.
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

impl Backend for Files {
    type File = Open;
    type Metadata = Metadata;
    type OpenFuture = Ready<io::Result<Open>>;
    type MetadataFuture = Ready<io::Result<Metadata>>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        ready(self.find(path))
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        ready(std::fs::metadata(path).map_err(absent))
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
                // No more than it has is made ready, and a byte to see its end.
                let length = usize::try_from(this.metadata.len()).unwrap_or(usize::MAX);
                let most = buffer.remaining().min(length.saturating_add(1));
                let read = file.read(buffer.initialize_unfilled_to(most))?;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
            Reading::Elsewhere(file) => Pin::new(file).poll_read(context, buffer),
        }
    }
}

impl AsyncSeek for Open {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        match &mut self.get_mut().read {
            Reading::Done(bytes) => bytes.seek(position).map(drop),
            Reading::Here(file) => file.seek(position).map(drop),
            Reading::Elsewhere(file) => Pin::new(file).start_seek(position),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.get_mut().read {
            Reading::Done(bytes) => Poll::Ready(Ok(bytes.position())),
            Reading::Here(file) => Poll::Ready(file.stream_position()),
            Reading::Elsewhere(file) => Pin::new(file).poll_complete(context),
        }
    }
}
