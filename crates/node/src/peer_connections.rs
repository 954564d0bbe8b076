//! Open connections of peers, and their end when a peer loses its rights.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::certificate::PeerCertificate;

/// All open connections.
pub struct PeerConnections {
    open: Mutex<HashMap<u64, PeerConnection>>,
    next: AtomicU64,
    most: usize,
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPurpose {
    /// To use tokens.
    Work,
    /// To exchange lists of revoked certificates.
    Lists,
}

/// Connections for lists of one host: one for each of its links, and one may replace another.
const FOR_LISTS: usize = 4;

struct PeerConnection {
    shown: PeerCertificate,
    purpose: ConnectionPurpose,
    leave: Arc<Notify>,
}

/// The permit of one connection, for as long as it is open.
pub struct ConnectionPermit {
    peers: Arc<PeerConnections>,
    number: u64,
    /// Notified when it has to close.
    pub leave: Arc<Notify>,
}

impl PeerConnections {
    /// No connections yet, and at most so many.
    pub fn new(most: usize) -> Self {
        Self {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            most,
        }
    }

    /// Adds a connection. Each of the `peers` has an equal share, and some more connections for lists; `Err` is the
    /// size of the share.
    pub fn enter(
        self: &Arc<Self>,
        shown: PeerCertificate,
        purpose: ConnectionPurpose,
        peers: usize,
    ) -> Result<ConnectionPermit, usize> {
        let share = match purpose {
            ConnectionPurpose::Work => self.most.checked_div(peers).unwrap_or(0).max(1),
            ConnectionPurpose::Lists => FOR_LISTS,
        };
        let mut open = self.open.lock();
        let same = |connection: &&PeerConnection| {
            connection.purpose == purpose && connection.shown.name == shown.name
        };
        if open.values().filter(same).count() >= share {
            return Err(share);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let leave = Arc::new(Notify::new());
        let connection = PeerConnection {
            shown,
            purpose,
            leave: Arc::clone(&leave),
        };
        open.insert(number, connection);
        Ok(ConnectionPermit {
            peers: Arc::clone(self),
            number,
            leave,
        })
    }

    /// Closes connections of peers that may not stay; returns their names.
    pub fn dismiss(&self, may_stay: impl Fn(&PeerCertificate) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for connection in self.open.lock().values() {
            if !may_stay(&connection.shown) {
                connection.leave.notify_one();
                names.push(connection.shown.name.clone());
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.peers.open.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;

    use super::*;

    #[test]
    fn no_peer_takes_the_places_of_another() {
        let peers = Arc::new(PeerConnections::new(5));
        let enter_for = |purpose, name: &str| {
            let (name, serial) = (name.to_owned(), String::new());
            let shown = PeerCertificate {
                name,
                serial,
                until: 0,
                der: CertificateDer::from(Vec::new()),
                others: Arc::default(),
            };
            peers.enter(shown, purpose, 2)
        };
        let enter = |name| enter_for(ConnectionPurpose::Work, name);
        let mut first: Vec<_> = (0..2).map(|_| enter("web1").ok().unwrap()).collect();
        assert_eq!(enter("web1").err(), Some(2));
        let _second = enter("web2").ok().unwrap();
        // Lists have places of their own.
        let for_lists = || enter_for(ConnectionPurpose::Lists, "web1");
        let lists: Vec<_> = (0..FOR_LISTS).map(|_| for_lists().ok().unwrap()).collect();
        assert_eq!(for_lists().err(), Some(FOR_LISTS));
        assert_eq!(lists.len(), FOR_LISTS);
        first.pop();
        assert!(enter("web1").is_ok());
    }
}
