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

/// Processes that wait for their turn. One at a time is served, but any user may connect.
const BACKLOG: i32 = 128;

/// A socket for links. Its file is removed when it is dropped.
pub struct LinkSocket {
    listener: OwnedFd,
    path: PathBuf,
    inode: Option<FileNumber>,
    /// When a refused user or an error was logged last.
    warned: Mutex<Option<Instant>>,
}

/// The pause between two warnings about refused users, who could fill the log.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// The pause after a connection that could not be accepted.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

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

    /// Waits for a process of one of these users: its link, and its process id. `None`: none
    /// has come within this time. Nobody can keep it from others: it looks at whoever waits, without a pause.
    pub fn accept(&self, users: &[u32], within: Duration) -> Option<(ServiceLink, u32)> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            match self.next(users, left) {
                Ok(Some(connected)) => return Some(connected),
                Ok(None) => {}
                // There are no descriptors, or the other end has gone.
                Err(error) => {
                    self.warn(|path| tracing::warn!(%error, "{path}: no link is accepted"));
                    std::thread::sleep(ERROR_PAUSE.min(left));
                }
            }
        }
    }

    /// Looks at the next connection.
    fn next(&self, users: &[u32], within: Duration) -> io::Result<Option<(ServiceLink, u32)>> {
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
        let uid = peer.uid.as_raw();
        if !users.contains(&uid) {
            self.warn(|path| {
                tracing::warn!(
                    uid,
                    "{path}: this user may not be the service, and is refused"
                );
            });
            return Ok(None);
        }
        if has_gone(&link)? {
            return Ok(None);
        }
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Some((ServiceLink::of_daemon(link), pid)))
    }

    /// Logs this, unless something was logged a moment ago.
    fn warn(&self, log: impl FnOnce(std::path::Display<'_>)) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|last| last.elapsed() >= WARNING_PAUSE) {
            *warned = Some(Instant::now());
            log(self.path.display());
        }
    }
}

/// Whether the other end has been closed: its process has ended while it waited.
fn has_gone(link: &OwnedFd) -> io::Result<bool> {
    let mut ends = [PollFd::new(link, PollFlags::RDHUP)];
    let now = Timespec::default();
    Ok(rustix::io::retry_on_intr(|| poll(&mut ends, Some(&now)))? > 0)
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

    use hsmux_wire::ToService;

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

    #[test]
    fn who_has_gone_while_it_waited_is_no_service() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin-gateway.sock");
        let links = LinkSocket::open(&path).unwrap();
        let own = [rustix::process::geteuid().as_raw()];
        // More than 8 wait without a process that is served.
        let gone: Vec<_> = (0..100)
            .map(|_| ServiceLink::connect(&path).unwrap())
            .collect();
        drop(gone);
        let there = ServiceLink::connect(&path).unwrap();
        let (link, pid) = links.accept(&own, Duration::from_secs(30)).expect("a link");
        assert_eq!(pid, std::process::id());
        link.tell(&ToService::StopListening).unwrap();
        let heard = ServiceLink::of_service(there).hear().unwrap();
        assert!(matches!(heard, ToService::StopListening));
        assert!(links.accept(&own, Duration::from_millis(1)).is_none());
        // Neither root nor the daemon's own user, if another one is the service.
        let _other = ServiceLink::connect(&path).unwrap();
        let other = [own[0] + 1];
        assert!(links.accept(&other, Duration::from_millis(100)).is_none());
        assert!(links.accept(&own, Duration::from_millis(1)).is_none());
    }
}
