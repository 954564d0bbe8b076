//! A folder of files. Short ones are read at once on the thread that serves, as web servers do: they are in the
//! page cache, and each way to a thread for files and back costs more than the reading.

use std::fs::Metadata;
use std::future::{Ready, ready};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tower_http::services::fs::{Backend, File};

use crate::files::{self, Held};

/// What is longer is read elsewhere.
const SHORT: u64 = 1 << 20;

/// Where `ServeDir` has its files from, as long as there may be more.
#[derive(Clone)]
pub struct Files(pub files::Files);

/// An open file.
pub struct Open {
    metadata: Metadata,
    read: Reading,
    _held: Held,
}

enum Reading {
    Here(std::fs::File),
    Elsewhere(tokio::fs::File),
}

impl Open {
    fn at(path: &Path, held: Held) -> io::Result<Self> {
        // Nobody waits for the other end of a FIFO.
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)?;
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

impl Backend for Files {
    type File = Open;
    type Metadata = Metadata;
    type OpenFuture = Ready<io::Result<Open>>;
    type MetadataFuture = Ready<io::Result<Metadata>>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        let held = self.0.behind().ok_or(Errno::MFILE.into());
        ready(held.and_then(|held| Open::at(&path, held)))
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        ready(std::fs::metadata(path))
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
            Reading::Here(file) => file.seek(position).map(drop),
            Reading::Elsewhere(file) => Pin::new(file).start_seek(position),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.get_mut().read {
            Reading::Here(file) => Poll::Ready(file.stream_position()),
            Reading::Elsewhere(file) => Pin::new(file).poll_complete(context),
        }
    }
}
