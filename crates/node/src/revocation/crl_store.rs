//! The lists of a host in their file, which several processes read and replace.

use std::path::Path;

use hsmux_config::Identity;
use hsmux_token::Result;
use rustix::fs::{Access, access};
use x509_cert::der::pem::{self, LineEnding};

use super::crl::{Crl, TrustedAuthorities};
use crate::ca::files::{lock, replace};
use crate::identity::{failed, lists};

/// The content of the file.
pub struct CrlStore {
    /// The authorities whose lists are accepted.
    pub believed: TrustedAuthorities,
    /// The newest of each authority.
    pub lists: Vec<Crl>,
    /// Other lists in the file, which stay (DER).
    others: Vec<Vec<u8>>,
}

impl CrlStore {
    /// Reads it.
    pub fn read(identity: &Identity, file: &Path) -> Result<Self> {
        let mut store = Self {
            believed: TrustedAuthorities::read(&identity.ca)?,
            lists: Vec::new(),
            others: Vec::new(),
        };
        for der in lists(file)? {
            match Crl::checked(&der, &store.believed) {
                Ok(list) => drop(list.join(&mut store.lists)),
                Err(_) => store.others.push(der.to_vec()),
            }
        }
        Ok(store)
    }

    /// Stores a list, unless one as new is there; returns whether it was stored.
    pub fn put(identity: &Identity, file: &Path, list: &Crl) -> Result<bool> {
        // A symlink is followed: its owner changes the file behind it.
        let file = &file.canonicalize().map_err(|e| failed(file, &e))?;
        let _lock = lock(folder(file))?;
        let mut store = Self::read(identity, file)?;
        let put = list.join(&mut store.lists);
        if put {
            replace(file, store.written(file)?.as_bytes())?;
        }
        Ok(put)
    }

    fn written(&self, file: &Path) -> Result<String> {
        let lists = self.lists.iter().map(|list| &*list.der);
        let others = self.others.iter().map(|other| &**other);
        let written = lists
            .chain(others)
            .map(|der| pem::encode_string("X509 CRL", LineEnding::LF, der));
        written
            .collect::<Result<_, _>>()
            .map_err(|e| failed(file, &e))
    }
}

/// Warns if the file cannot be written, before a list comes.
pub fn look_at(file: &Path) {
    let folder = folder(file);
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        tracing::warn!(
            "lists of revoked certificates that other hosts have cannot be taken over: {}: {error}; {ADVICE}",
            folder.display()
        );
    }
}

/// Advice for a file that cannot be written.
pub const ADVICE: &str = "have `revoked` of [node] in a folder where the daemon may write";

fn folder(file: &Path) -> &Path {
    let folder = file.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
