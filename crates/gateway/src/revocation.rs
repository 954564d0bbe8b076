//! Revocation of client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use boring::x509::X509Ref;
use hsmux_config::Clients;
use hsmux_software::revocation::{Revocation, RevocationError};
use hsmux_token::Result;

use crate::certificate::wrong;
use crate::client_roots::ClientRoots;
use crate::sites::Sites;

/// Reads the lists of a site's `client_crl`, if it has some. A list is never replaced by an older one.
pub fn read(
    clients: Option<&Clients>,
    roots: Option<&ClientRoots>,
    before: Option<&Revocation>,
) -> Result<Option<Arc<Revocation>>> {
    let clients = clients.filter(|clients| !clients.lists.is_empty());
    let (Some(clients), Some(roots)) = (clients, roots) else {
        return Ok(None);
    };
    let files = clients.lists.iter().map(|file| &**file);
    let read = Revocation::read(files, roots.encoded());
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
    check_encoded(lists, &chain)
}

/// The same for certificates in DER.
pub fn check_encoded(lists: &Revocation, chain: &[Vec<u8>]) -> Result<(), RevocationError> {
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
