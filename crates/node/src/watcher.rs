//! Changes while the service runs: certificates and lists in files, peers in the configuration.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hsmux_config::Identity;
use hsmux_config::NodeSection;
use hsmux_state::FileVersions;
use hsmux_token::Result;
use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;

use crate::certificate::{PeerCertificate, Serial};
use crate::identity::{self, TlsIdentity, unfit};
use crate::server::NodeServer;

/// How often.
const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// Certificates as they are now.
pub struct TlsState {
    /// For new connections.
    pub server: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
    /// The certificates whose connections have to end.
    pub revoked: HashSet<Serial>,
    seen: (Identity, FileVersions),
}

impl TlsState {
    /// Reads the files.
    pub fn read(identity: &Identity) -> Result<Self> {
        // The versions come first: a change during the read is read again.
        let seen = (identity.clone(), FileVersions::of(identity.files()));
        let loaded = TlsIdentity::read(identity)?;
        Ok(Self {
            server: loaded.server().map_err(|e| unfit(identity, &e))?,
            clients: loaded.clients().map_err(|e| unfit(identity, &e))?,
            revoked: loaded.revoked,
            seen,
        })
    }

    /// True if this certificate would be accepted now.
    pub fn believes(&self, shown: &PeerCertificate) -> bool {
        let now = UnixTime::now();
        let verified = self
            .clients
            .verify_client_cert(&shown.der, &shown.others, now);
        verified.is_ok() && !self.revoked.contains(&shown.serial)
    }
}

/// Applies changes, for ever.
pub async fn run(server: Arc<NodeServer>) {
    let mut failed: Option<(Identity, FileVersions)> = None;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        // Without the section no host may connect.
        let config = server.daemon.config();
        let Some(node) = &config.node else {
            server.peers.dismiss(|_| false);
            continue;
        };
        let now = (
            node.identity.clone(),
            FileVersions::of(node.identity.files()),
        );
        let news = server.current.load().seen != now && failed.as_ref() != Some(&now);
        if news {
            match TlsState::read(&node.identity) {
                Ok(current) => {
                    server.current.store(Arc::new(current));
                    tracing::info!("the node has read its certificates again");
                }
                Err(error) => {
                    tracing::warn!(%error, "the node's certificates are as they were");
                    failed = Some(now);
                    revoke_all_the_same(&server, &node.identity);
                }
            }
        }
        dismiss(&server, node, news);
    }
}

/// Applies the revocation list alone, if other files are wrong.
fn revoke_all_the_same(server: &NodeServer, identity: &Identity) {
    let revoked = identity.revoked.as_deref().map(identity::revoked);
    let Some(Ok(revoked)) = revoked else { return };
    let old = server.current.load();
    server.current.store(Arc::new(TlsState {
        server: Arc::clone(&old.server),
        clients: Arc::clone(&old.clients),
        revoked,
        seen: old.seen.clone(),
    }));
}

/// Ends connections of revoked hosts, of hosts that are no longer peers, and of expired certificates; after `news`
/// also of hosts whose authority is no longer trusted.
fn dismiss(server: &NodeServer, node: &NodeSection, news: bool) {
    let current = server.current.load();
    let may_stay = |shown: &PeerCertificate| {
        let named = node.peers.iter().any(|peer| peer.name == shown.name);
        let good = !shown.has_expired() && !current.revoked.contains(&shown.serial);
        named && good && (!news || current.believes(shown))
    };
    for name in server.peers.dismiss(may_stay) {
        tracing::warn!(
            name,
            "the connections of this host are ended: it may not stay"
        );
    }
}
