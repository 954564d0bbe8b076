//! Listening sockets of a service. The daemon keeps duplicates, and gives them to the next process of the service.
//!
//! docs/internals/services.md, "Listening sockets", has the reasons.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use hsmux_config::Socket;
use hsmux_edge::unix_listener::{FileNumber, SocketFile, file_number};
use hsmux_edge::{tcp_listener, unix_listener};
use hsmux_token::Result;
use hsmux_wire::{FromService, ListeningSocket, ServiceLink};

use crate::Daemon;

impl Daemon {
    /// Listens at the address that this key of the configuration has.
    pub fn listen(&self, key: &str, address: SocketAddr) -> io::Result<TcpListener> {
        let name = format!("{key} {address}");
        let inherited = self.take(&name);
        let adopted = inherited.and_then(|socket| tcp_listener::adopt(socket, address));
        let listener = adopted.map_or_else(|| tcp_listener::listen(address), Ok)?;
        self.keep(name, &listener);
        Ok(listener)
    }

    /// Listens on a unix socket.
    pub fn listen_unix(&self, socket: &Socket) -> Result<(UnixListener, SocketFile)> {
        let number = file_number(&socket.path);
        let inherited = number.and_then(|number| self.take(&unix_name(&socket.path, number)));
        let adopted = inherited.and_then(|listening| unix_listener::adopt(listening, socket));
        let (listener, file) = adopted.map_or_else(|| unix_listener::listen(socket), Ok)?;
        self.keep(unix_name(&socket.path, file.number()), &listener);
        Ok((listener, file))
    }

    /// Takes an inherited socket. Two of one name, as port 0 has, are taken in their order.
    fn take(&self, name: &str) -> Option<OwnedFd> {
        let mut inherited = self.inherited.lock();
        let found = inherited.iter().position(|socket| socket.name == name)?;
        Some(inherited.remove(found).socket)
    }

    /// Has the daemon keep a duplicate. Without one the next process opens another socket.
    fn keep(&self, name: String, listener: &impl AsFd) {
        let duplicate = listener.as_fd().try_clone_to_owned();
        let kept = duplicate.and_then(|socket| {
            if self.kept.fetch_add(1, Relaxed) >= ServiceLink::MOST_SOCKETS {
                return Err(io::Error::other("the daemon keeps no more sockets"));
            }
            let listening = ListeningSocket { name, socket };
            self.link.report(FromService::Listens(listening))
        });
        if let Err(error) = kept {
            tracing::warn!(%error, "a restart of this service will refuse connections for a moment");
        }
    }
}

/// The file's number is part of the name: another process may have replaced the file.
fn unix_name(path: &Path, (device, inode): FileNumber) -> String {
    format!("socket {} {device}:{inode}", path.display())
}
