//! Reads a long file part by part, on threads for blocking work.

use std::fs::File;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::ReadBuf;

use super::blocking_reads::FolderReads;

/// Bytes that one read on another thread brings at most.
const PART: usize = 64 << 10;

type PendingRead = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// An open file with a position.
pub struct FileReader {
    file: Arc<File>,
    length: u64,
    /// `None`: a local disk, which always answers.
    reads: Option<FolderReads>,
    at: u64,
    /// Bytes that were read from `at` on.
    part: Bytes,
    /// The read under way. The lock is never taken: it only makes the future `Sync`.
    pending: Option<Mutex<PendingRead>>,
}

impl FileReader {
    pub fn new(file: File, length: u64, reads: Option<FolderReads>) -> Self {
        Self {
            file: Arc::new(file),
            length,
            reads,
            at: 0,
            part: Bytes::new(),
            pending: None,
        }
    }

    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.part.is_empty() {
            let pending = self.pending.get_or_insert_with(|| {
                let (file, reads, at) = (Arc::clone(&self.file), self.reads.clone(), self.at);
                let most = buffer.remaining().min(PART);
                Mutex::new(Box::pin(read(reads, move || part(&file, at, most))))
            });
            let read = ready!(pending.get_mut().as_mut().poll(context));
            self.pending = None;
            self.part = read?;
        }
        let length = self.part.len().min(buffer.remaining());
        buffer.put_slice(&self.part[..length]);
        self.part.advance(length);
        self.at += length as u64;
        Poll::Ready(Ok(()))
    }

    /// Sets the position, and drops what was read before.
    pub fn seek(&mut self, position: SeekFrom) -> io::Result<()> {
        let at = match position {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        self.part = Bytes::new();
        self.pending = None;
        Ok(())
    }

    pub fn position(&self) -> u64 {
        self.at
    }
}

async fn read(
    reads: Option<FolderReads>,
    read: impl FnOnce() -> io::Result<Bytes> + Send + 'static,
) -> io::Result<Bytes> {
    match reads {
        Some(reads) => reads.run(read).await,
        None => tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|panic| Err(io::Error::other(panic))),
    }
}

fn part(file: &File, at: u64, most: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; most];
    let read = file.read_at(&mut bytes, at)?;
    bytes.truncate(read);
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::blocking_reads::BlockingReads;
    use std::future::poll_fn;
    use std::io::Write;
    use std::path::Path;

    async fn next(reader: &mut FileReader, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|context| reader.poll_read(context, &mut buffer))
            .await
            .unwrap();
        buffer.filled().to_vec()
    }

    #[tokio::test]
    async fn a_file_is_read_from_any_position() {
        let bytes: Vec<u8> = (0..PART + 9).map(|n| (n % 251) as u8).collect();
        let reads = BlockingReads::default().of(Path::new("/"));
        for reads in [None, Some(reads)] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            is_read(FileReader::new(file, bytes.len() as u64, reads), &bytes).await;
        }
    }

    async fn is_read(mut reader: FileReader, bytes: &[u8]) {
        let mut all = Vec::new();
        loop {
            let part = next(&mut reader, 1000).await;
            if part.is_empty() {
                break;
            }
            all.extend(part);
        }
        assert!(all == *bytes);
        reader.seek(SeekFrom::End(-9)).unwrap();
        assert_eq!(next(&mut reader, 1000).await, bytes[PART..]);
        reader.seek(SeekFrom::Start(3)).unwrap();
        assert_eq!(next(&mut reader, 2).await, bytes[3..5]);
        reader.seek(SeekFrom::Current(1)).unwrap();
        assert_eq!(reader.position(), 6);
        assert_eq!(next(&mut reader, 1).await, bytes[6..7]);
        assert!(reader.seek(SeekFrom::Current(-100)).is_err());
    }
}
