//! Unix sockets whose permissions are set before anybody can connect.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use hsmux_token::{Error, Kind, Result};

use hsmux_config::{Socket, group_id};
use rustix::net::AddressFamily;

/// The file of a listening socket. Removed when dropped, unless another process has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: FileNumber,
    is_left: AtomicBool,
}

/// The number of a socket's file: its device and its inode.
pub type FileNumber = (u64, u64);

/// The number of the file at this path, if there is one.
pub fn file_number(path: &Path) -> Option<FileNumber> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Uses a listening socket of an earlier process, whose file is still at its path. `None` if it does not listen.
pub fn adopt(listening: OwnedFd, socket: &Socket) -> Option<(UnixListener, SocketFile)> {
    let is_unix = rustix::net::sockopt::socket_domain(&listening).ok()? == AddressFamily::UNIX;
    let listens = rustix::net::sockopt::socket_acceptconn(&listening).ok()?;
    let file = SocketFile {
        path: socket.path.clone(),
        inode: file_number(&socket.path)?,
        // It belongs to this process once all is done.
        is_left: AtomicBool::new(true),
    };
    if !is_unix || !listens || permit(&socket.path, socket).is_err() {
        return None;
    }
    file.is_left.store(false, Ordering::Relaxed);
    Some((UnixListener::from(listening), file))
}

/// Opens a socket. A stale file is replaced; one that a process listens on is not.
///
/// The socket is created in a private folder, and moved to its path once mode and group are set: nobody without
/// permission can connect in between.
pub fn listen(socket: &Socket) -> Result<(UnixListener, SocketFile)> {
    let place = |e: io::Error| failed(&socket.path, &e);
    let folder = parent(&socket.path);
    if !folder.exists() {
        fs::create_dir(folder).map_err(|e| failed(folder, &e))?;
    }
    if UnixStream::connect(&socket.path).is_ok() {
        let message = format!(
            "{}: another process listens here already; stop it, or give this one another socket",
            socket.path.display()
        );
        return Err(Error::pool(Kind::Environment, message));
    }
    let nursery = folder.join(format!(".hsmux-{}", std::process::id()));
    let _ = fs::remove_dir_all(&nursery);
    DirBuilder::new()
        .mode(0o700)
        .create(&nursery)
        .map_err(place)?;
    let made = make(&nursery.join("s"), socket);
    let _ = fs::remove_dir_all(&nursery);
    made
}

fn make(draft: &Path, socket: &Socket) -> Result<(UnixListener, SocketFile)> {
    let place = |e: io::Error| failed(&socket.path, &e);
    let listener = UnixListener::bind(draft).map_err(place)?;
    permit(draft, socket)?;
    let meta = fs::metadata(draft).map_err(place)?;
    fs::rename(draft, &socket.path).map_err(place)?;
    let file = SocketFile {
        path: socket.path.clone(),
        inode: (meta.dev(), meta.ino()),
        is_left: AtomicBool::new(false),
    };
    Ok((listener, file))
}

/// Sets group and mode of a socket's file. The mode is 0600 in between: the new group never gets the old mode.
fn permit(file: &Path, socket: &Socket) -> Result<()> {
    let place = |e: io::Error| failed(&socket.path, &e);
    if let Some(group) = &socket.group {
        let id = group_id(group).ok_or_else(|| {
            let path = socket.path.display();
            Error::pool(
                Kind::Environment,
                format!("{path}: there is no group {group}"),
            )
        })?;
        fs::set_permissions(file, Permissions::from_mode(0o600)).map_err(place)?;
        chown(file, None, Some(id)).map_err(place)?;
    }
    fs::set_permissions(file, Permissions::from_mode(socket.mode)).map_err(place)
}

impl SocketFile {
    /// Applies another mode or group. Open connections stay.
    pub fn permit(&self, socket: &Socket) -> Result<()> {
        permit(&self.path, socket)
    }

    /// The number of the file.
    pub fn number(&self) -> FileNumber {
        self.inode
    }

    /// Leaves the file to another process, which listens on the same socket.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_left = self.is_left.load(Ordering::Relaxed);
        if !is_left && file_number(&self.path) == Some(self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn parent(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::pool(Kind::Environment, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(path: PathBuf, mode: u32) -> Socket {
        Socket {
            path,
            mode,
            group: None,
            allow_users: Vec::new(),
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/hsmux.sock");
        fs::create_dir(folder.path().join("run")).unwrap();
        drop(UnixListener::bind(&path).unwrap());

        let (listener, file) = listen(&socket(path.clone(), 0o620)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
        let error = listen(&socket(path.clone(), 0o660)).unwrap_err();
        assert!(
            error.to_string().contains("listens here already"),
            "{error}"
        );
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_is_adopted_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let (listener, file) = listen(&socket(path.clone(), 0o600)).unwrap();
        let kept = OwnedFd::from(listener.try_clone().unwrap());
        assert_eq!(file_number(&path), Some(file.number()));
        file.leave();
        drop((listener, file));
        let (listener, file) = adopt(kept, &socket(path.clone(), 0o620)).expect("a listener");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
        let client = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for open in [client, accepted] {
            assert!(adopt(open.into(), &socket(path.clone(), 0o600)).is_none());
        }
        assert!(path.exists());
        let kept = OwnedFd::from(listener);
        drop(file);
        assert!(!path.exists());
        assert!(adopt(kept, &socket(path, 0o600)).is_none());
    }

    #[test]
    fn a_replaced_socket_file_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let (listener, file) = listen(&socket(path.clone(), 0o600)).unwrap();
        drop(listener);
        let (_second, kept) = listen(&socket(path.clone(), 0o600)).unwrap();
        drop(file);
        assert!(path.exists());
        drop(kept);
        assert!(!path.exists());
    }
}
