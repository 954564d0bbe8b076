//! The authority of a cluster: a folder with its key, its certificate, what it has issued, and what it has
//! taken back.
//!
//! | file | what |
//! |---|---|
//! | `ca.pem` | its certificate, for every host |
//! | `ca.key` | its private key, which stays here |
//! | `revoked.pem` | its list of revoked certificates (RFC 5280, section 5), for every host |
//! | `issued.json` | what it has issued: the list is made of it |

mod files;
mod issue;
mod ledger;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hsmux_pool::config::node_name;
use hsmux_token::{Error, Kind, Result};
use zeroize::Zeroizing;

use files::{Lock, NewFolder, PRIVATE, PUBLIC, failed, read, replace};
use issue::{Issuer, Subject};
pub use ledger::Issued;
use ledger::Ledger;

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const REVOKED: &str = "revoked.pem";
const ISSUED: &str = "issued.json";

/// An authority in its folder.
pub struct Authority {
    folder: PathBuf,
}

/// What a new host gets.
pub struct Enrolled {
    /// The folder with `node.pem`, `node.key`, `ca.pem` and `revoked.pem`.
    pub folder: PathBuf,
    /// The certificate.
    pub issued: Issued,
}

/// What a revocation has changed.
pub struct Revoked {
    /// The new list, for every host.
    pub list: PathBuf,
    /// What is on it now that was not before.
    pub certificates: Vec<Issued>,
}

impl Authority {
    /// Makes a new authority in a folder that is not there yet.
    pub fn init(folder: &Path, name: &str, life: Duration) -> Result<Self> {
        let new = NewFolder::beside(folder)?;
        let key = issue::new_key()?;
        let ledger = Ledger::new(name, until(life)?);
        let issuer = Issuer::new(&ledger, key.0);
        new.write(KEY, key.1.as_bytes(), PRIVATE)?;
        new.write(CERTIFICATE, issuer.own_certificate()?.as_bytes(), PUBLIC)?;
        new.write(REVOKED, issuer.revoked(&ledger)?.as_bytes(), PUBLIC)?;
        new.write(ISSUED, ledger.written()?.as_bytes(), PUBLIC)?;
        new.settle(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// The authority in this folder.
    pub fn open(folder: &Path) -> Result<Self> {
        if folder.join(KEY).is_file() {
            return Ok(Self {
                folder: folder.to_owned(),
            });
        }
        let message = format!(
            "{}: no authority; hsmux node ca init makes one, --ca says where it is",
            folder.display()
        );
        Err(Error::request(Kind::Environment, message))
    }

    /// Makes a key and a certificate for a host, in a folder that is not there yet; `addresses` are names and
    /// IP addresses beside its own name.
    pub fn enroll(
        &self,
        name: &str,
        addresses: &[String],
        life: Duration,
        into: &Path,
    ) -> Result<Enrolled> {
        let name = node_name(name).map_err(|why| Error::request(Kind::Invalid, why))?;
        let _lock = Lock::take(&self.folder)?;
        let mut ledger = self.ledger()?;
        let new = NewFolder::beside(into)?;
        let (key, pem) = issue::new_key()?;
        let subject = Subject {
            name: &name,
            addresses,
            serial: issue::serial()?,
            until: until(life)?.min(ledger.until),
        };
        let certificate = self.issuer(&ledger)?.certificate(&subject, &key)?;
        new.write("node.key", pem.as_bytes(), PRIVATE)?;
        new.write("node.pem", certificate.as_bytes(), PUBLIC)?;
        for file in [CERTIFICATE, REVOKED] {
            new.write(file, &read(&self.folder.join(file))?, PUBLIC)?;
        }
        let issued = ledger.add(&subject);
        // First what makes it revocable, then the certificate itself.
        replace(&self.folder.join(ISSUED), ledger.written()?.as_bytes())?;
        if let Err(error) = new.settle(into) {
            ledger.forget(&issued);
            replace(&self.folder.join(ISSUED), ledger.written()?.as_bytes())?;
            return Err(error);
        }
        Ok(Enrolled {
            folder: into.to_owned(),
            issued,
        })
    }

    /// Takes back all certificates of a host, or the one of a serial number.
    pub fn revoke(&self, which: &str) -> Result<Revoked> {
        let _lock = Lock::take(&self.folder)?;
        let mut ledger = self.ledger()?;
        let certificates = ledger.revoke(which)?;
        replace(&self.folder.join(ISSUED), ledger.written()?.as_bytes())?;
        let list = self.folder.join(REVOKED);
        replace(&list, self.issuer(&ledger)?.revoked(&ledger)?.as_bytes())?;
        Ok(Revoked { list, certificates })
    }

    /// What it has issued, in order.
    pub fn issued(&self) -> Result<Vec<Issued>> {
        Ok(self.ledger()?.issued)
    }

    fn ledger(&self) -> Result<Ledger> {
        let file = self.folder.join(ISSUED);
        serde_json::from_slice(&read(&file)?).map_err(|e| failed(&file, &e))
    }

    fn issuer(&self, ledger: &Ledger) -> Result<Issuer> {
        let file = self.folder.join(KEY);
        let pem = Zeroizing::new(read(&file)?);
        let text = std::str::from_utf8(&pem).map_err(|e| failed(&file, &e))?;
        let key = rcgen::KeyPair::from_pem(text).map_err(|e| failed(&file, &e))?;
        Ok(Issuer::new(ledger, key))
    }
}

/// The end of a life that begins now, in seconds after 1970.
fn until(life: Duration) -> Result<u64> {
    // Certificates end with the year 9999 (RFC 5280, section 4.1.2.5); a thousand years are enough.
    if life < Duration::from_secs(1) || life > Duration::from_secs(1000 * 366 * 86_400) {
        let message = "a certificate lives for at least a second, and at most 1000 years";
        return Err(Error::request(Kind::Invalid, message));
    }
    Ok(now() + life.as_secs())
}

/// Seconds after 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
