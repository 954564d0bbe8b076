//! Revocation of client certificates, at handshakes and on open connections.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use boring::ssl::SslRef;
use boring::x509::X509Ref;
use hsmux_config::Clients;
use hsmux_software::revocation::{Revocation, RevocationError};
use hsmux_token::Result;

use crate::app_state::AppState;
use crate::certificate::{chain, wrong};
use crate::sites::Sites;

/// The certificates that a client has presented, its own first (DER), and the first name of its site.
pub struct ClientChain {
    site: String,
    chain: Vec<Vec<u8>>,
}

/// Reads the lists of a site's `client_crl`, if it has some. A list is never replaced by an older one.
pub fn read(
    clients: Option<&Clients>,
    before: Option<&Revocation>,
) -> Result<Option<Arc<Revocation>>> {
    let Some(clients) = clients.filter(|clients| !clients.lists.is_empty()) else {
        return Ok(None);
    };
    let roots = chain(&clients.roots)?;
    let roots: Vec<_> = roots.iter().filter_map(|root| root.to_der().ok()).collect();
    let files = clients.lists.iter().map(|file| &**file);
    let read = Revocation::read(files, &roots);
    let read = read.map_err(|e| wrong(format!("client_crl {}", e.file.display()), e.why));
    let mut read = read?;
    for outdated in before.iter().flat_map(|before| read.keep_newer(before)) {
        tracing::warn!("client_crl {outdated}");
    }
    Ok(Some(Arc::new(read)))
}

/// Checks a client's certificates against the lists, as of now.
pub fn check<'a>(
    lists: &Revocation,
    chain: impl IntoIterator<Item = &'a X509Ref>,
) -> Result<(), RevocationError> {
    let chain = chain
        .into_iter()
        .map(X509Ref::to_der)
        .collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|e| RevocationError::Unreadable(e.to_string()))?;
    lists.judge(chain.iter().map(|der| &**der), now())
}

/// Unix time.
fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Expired lists of all sites.
pub fn expired(sites: &Sites) -> Vec<PathBuf> {
    let lists = sites
        .each()
        .filter_map(|served| served.revocation.as_deref());
    let now = now();
    let expired = lists.flat_map(|lists| lists.expired(now).map(Path::to_owned));
    expired.collect()
}

impl ClientChain {
    /// The certificates that a client of a site has presented, if any.
    pub fn of(ssl: &SslRef, site: &str) -> Option<Self> {
        let own = ssl.peer_certificate()?;
        let others = ssl.peer_cert_chain().into_iter().flatten();
        let others = others.map(X509Ref::to_der);
        let chain = std::iter::once(own.to_der()).chain(others);
        Some(Self {
            site: site.to_owned(),
            chain: chain.collect::<Result<_, _>>().ok()?,
        })
    }

    /// Returns once the site no longer accepts them.
    pub async fn until_refused(&self, app: &AppState) {
        let mut changes = app.changes.subscribe();
        loop {
            if let Err(why) = self.check(&app.sites.load()) {
                tracing::warn!("a client's connection is ended: {why}");
                return;
            }
            if changes.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    fn check(&self, sites: &Sites) -> Result<(), RevocationError> {
        let site = sites.find(Some(&self.site));
        let lists = site
            .as_ref()
            .and_then(|served| served.revocation.as_deref());
        let chain = self.chain.iter().map(|der| &**der);
        lists.map_or(Ok(()), |lists| lists.judge(chain, now()))
    }
}
