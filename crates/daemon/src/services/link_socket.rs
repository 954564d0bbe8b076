//! Where a service connects that the daemon has not started.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hsmux_edge::unix_listener::{FileNumber, file_number};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::ServiceLink;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};

/// Processes that wait for their turn. One at a time is served.
const BACKLOG: i32 = 8;

/// A socket for links. Its file is removed when it is dropped.
pub struct LinkSocket {
    listener: OwnedFd,
    path: PathBuf,
    inode: Option<FileNumber>,
    /// When a refused user was logged last.
    warned: Mutex<Option<Instant>>,
}

/// The pause between two warnings about refused users, who could fill the log.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

impl LinkSocket {
    /// Opens it. Everybody may connect: the kernel says who that is.
    pub fn open(path: &Path) -> Result<Self> {
        let made = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            if is_live(path)? {
                let message =
                    "another process listens here already; stop it, or give [admin] another socket";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
            }
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            bind(&listener, &SocketAddrUnix::new(path)?)?;
            fs::set_permissions(path, Permissions::from_mode(0o666))?;
            listen(&listener, BACKLOG)?;
            Ok(listener)
        };
        let listener = made().map_err(|error| {
            let message = format!("{}: {error}", path.display());
            Error::pool(Kind::Environment, message)
        })?;
        Ok(Self {
            listener,
            inode: file_number(path),
            path: path.to_owned(),
            warned: Mutex::new(None),
        })
    }

    /// Waits for a process of this user, of root or of the daemon's own user: its link, and its process id. `None`: none
    /// has come within this time.
    pub fn accept(
        &self,
        user: impl FnOnce() -> Option<u32>,
        within: Duration,
    ) -> io::Result<Option<(ServiceLink, u32)>> {
        let within = Timespec {
            tv_sec: within.as_secs().cast_signed(),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        let mut ends = [PollFd::new(&self.listener, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut ends, Some(&within)))? == 0 {
            return Ok(None);
        }
        let link = accept_with(&self.listener, SocketFlags::CLOEXEC)?;
        let peer = sockopt::socket_peercred(&link)?;
        let own = rustix::process::geteuid();
        if !peer.uid.is_root() && peer.uid != own && Some(peer.uid.as_raw()) != user() {
            self.warn(peer.uid.as_raw());
            return Ok(None);
        }
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Some((ServiceLink::of_daemon(link), pid)))
    }

    fn warn(&self, uid: u32) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|last| last.elapsed() >= WARNING_PAUSE) {
            *warned = Some(Instant::now());
            let path = self.path.display();
            tracing::warn!(
                uid,
                "{path}: this user may not be the service, and is refused"
            );
        }
    }
}

impl Drop for LinkSocket {
    fn drop(&mut self) {
        if self.inode.is_some() && file_number(&self.path) == self.inode {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a process listens here, with packets or without.
fn is_live(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let trial = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match rustix::net::connect(&trial, &SocketAddrUnix::new(path)?) {
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(false),
        // AGAIN: its backlog is full. PROTOTYPE: it is a listener of another kind.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_live_socket_is_not_replaced_and_another_ones_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin-gateway.sock");
        let first = LinkSocket::open(&path).unwrap();
        let error = LinkSocket::open(&path).err().expect("an error").to_string();
        assert!(error.contains("listens here already"), "{error}");
        fs::remove_file(&path).unwrap();
        let second = LinkSocket::open(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        // Its process was killed.
        drop(UnixListener::bind(&path).unwrap());
        drop(LinkSocket::open(&path).unwrap());
        let _stream = UnixListener::bind(&path).unwrap();
        assert!(LinkSocket::open(&path).is_err());
    }
}
