//! The authority of a cluster: a folder with its key, its certificate, and its ledger.
//!
//! | file | what |
//! |---|---|
//! | `ca.pem` | its certificate, for every host |
//! | `ca.key` | its private key, which stays here, unless it is in a token |
//! | `revoked.pem` | its list of revoked certificates (RFC 5280, section 5), for every host |
//! | `issued.json` | the ledger of issued certificates, from which the list is made |

pub(crate) mod files;
mod issue;
mod key;
mod ledger;
mod public;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hsmux_config::node_name;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::{Error, Kind, Result, Token, Uri};

use crate::certificate;
use files::{NewFolder, PRIVATE, PUBLIC, failed, lock, read, replace, sync_parent};
use issue::{Issuer, Subject};
use key::{AuthorityKey, TokenKey};
use ledger::Ledger;
pub use ledger::{IssuedCertificate, TokenKeyRef};
use public::PublicHalf;

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const REVOKED: &str = "revoked.pem";
const ISSUED: &str = "issued.json";

/// An authority in its folder.
pub struct Authority {
    folder: PathBuf,
    /// The token that has its key, if one has.
    token: Option<Arc<dyn Token>>,
}

/// A host's request to an authority.
pub struct EnrollmentRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// Names and IP addresses beside that.
    pub addresses: &'a [String],
    /// How long its certificate is good.
    pub life: Duration,
    /// Its certificate request ([`request`]), PEM; without one a key is made for it.
    pub request: Option<&'a str>,
}

/// The files of a new host.
pub struct Enrollment {
    /// The folder with `node.pem`, `ca.pem`, `revoked.pem`, and `node.key` unless the host has made that itself.
    pub folder: PathBuf,
    /// The certificate.
    pub issued: IssuedCertificate,
}

/// The result of a revocation.
pub struct RevocationResult {
    /// The file with the new list, for every host.
    pub list: PathBuf,
    /// The certificates that this revocation has added.
    pub certificates: Vec<IssuedCertificate>,
}

impl Authority {
    /// Makes a new authority in a new folder, with a key of its own or one of a token.
    pub fn init(
        folder: &Path,
        name: &str,
        life: Duration,
        key: Option<(TokenKeyRef, Arc<dyn Token>)>,
    ) -> Result<Self> {
        let new = NewFolder::beside(folder)?;
        let (place, token) = key.unzip();
        let ledger = Ledger::new(name, until(life)?, place);
        let key = if let Some(token) = &token {
            AuthorityKey::Token(ledger.key_in(token)?)
        } else {
            let (key, pem) = issue::new_key()?;
            new.write(KEY, pem.as_bytes(), PRIVATE)?;
            AuthorityKey::File(key)
        };
        let issuer = Issuer::new(&ledger, key);
        new.write(CERTIFICATE, issuer.own_certificate()?.as_bytes(), PUBLIC)?;
        new.write(REVOKED, issuer.revoked(&ledger)?.as_bytes(), PUBLIC)?;
        new.write(ISSUED, ledger.written()?.as_bytes(), PUBLIC)?;
        new.settle(folder)?;
        sync_parent(folder)?;
        let folder = folder.to_owned();
        Ok(Self { folder, token })
    }

    /// The authority in this folder.
    pub fn open(folder: &Path) -> Result<Self> {
        if folder.join(ISSUED).is_file() {
            let (folder, token) = (folder.to_owned(), None);
            return Ok(Self { folder, token });
        }
        let message = format!(
            "{}: no authority; hsmux node ca init makes one, --ca says where it is",
            folder.display()
        );
        Err(Error::request(Kind::Environment, message))
    }

    /// The place of its key, if that is in a token.
    pub fn place(&self) -> Result<Option<TokenKeyRef>> {
        Ok(self.ledger()?.key)
    }

    /// The same with the token that has its key.
    #[must_use]
    pub fn with(self, token: Arc<dyn Token>) -> Self {
        let token = Some(token);
        Self { token, ..self }
    }

    /// Makes a certificate for a host, in a new folder.
    pub fn enroll(&self, wanted: &EnrollmentRequest<'_>, into: &Path) -> Result<Enrollment> {
        let name = known_as(wanted.name)?;
        let _lock = lock(&self.folder)?;
        let mut ledger = self.ledger()?;
        let issuer = self.issuer(&ledger)?;
        let new = NewFolder::beside(into)?;
        let subject = Subject {
            name: &name,
            addresses: wanted.addresses,
            serial: issue::serial()?,
            until: self.end(wanted.life, &ledger)?,
        };
        let certificate = if let Some(request) = wanted.request {
            let key = PublicHalf::requested(request, &name).map_err(|why| {
                let message = format!("the request: {why}; hsmux node request makes one");
                Error::request(Kind::Invalid, message)
            })?;
            issuer.certificate(&subject, &key)?
        } else {
            let (key, pem) = issue::new_key()?;
            new.write("node.key", pem.as_bytes(), PRIVATE)?;
            issuer.certificate(&subject, &key)?
        };
        new.write("node.pem", certificate.as_bytes(), PUBLIC)?;
        for file in [CERTIFICATE, REVOKED] {
            new.write(file, &read(&self.folder.join(file))?, PUBLIC)?;
        }
        let added = ledger.add(&subject);
        // The ledger comes first: it makes the certificate revocable.
        replace(&self.folder.join(ISSUED), ledger.written()?.as_bytes())?;
        if let Err(error) = new.settle(into) {
            ledger.forget(&added);
            replace(&self.folder.join(ISSUED), ledger.written()?.as_bytes())?;
            return Err(error);
        }
        // From here on the certificate may be in use: it stays in the ledger in any case.
        sync_parent(into)?;
        let folder = into.to_owned();
        Ok(Enrollment {
            folder,
            issued: added,
        })
    }

    /// Revokes all certificates of a host, or the one with a serial number.
    pub fn revoke(&self, which: &str) -> Result<RevocationResult> {
        let _lock = lock(&self.folder)?;
        let mut ledger = self.ledger()?;
        let certificates = ledger.revoke(which)?;
        replace(&self.folder.join(ISSUED), ledger.written()?.as_bytes())?;
        let list = self.folder.join(REVOKED);
        replace(&list, self.issuer(&ledger)?.revoked(&ledger)?.as_bytes())?;
        Ok(RevocationResult { list, certificates })
    }

    /// The issued certificates, in order.
    pub fn issued(&self) -> Result<Vec<IssuedCertificate>> {
        Ok(self.ledger()?.issued)
    }

    /// The end of a certificate's life that begins now, but never after the authority's.
    fn end(&self, life: Duration, ledger: &Ledger) -> Result<u64> {
        let end = until(life)?;
        if ledger.until > now() {
            return Ok(end.min(ledger.until));
        }
        let why = "it has expired, and so has all that it issues: hsmux node ca init makes another authority";
        Err(failed(&self.folder.join(CERTIFICATE), &why))
    }

    fn ledger(&self) -> Result<Ledger> {
        let file = self.folder.join(ISSUED);
        serde_json::from_slice(&read(&file)?).map_err(|e| failed(&file, &e))
    }

    fn issuer(&self, ledger: &Ledger) -> Result<Issuer> {
        let key = match (&ledger.key, &self.token) {
            (None, _) => AuthorityKey::File(self.key_in_file()?),
            (Some(_), Some(token)) => AuthorityKey::Token(self.key_in(token, ledger)?),
            (Some(place), None) => {
                let message = format!("{}: nobody has opened the token", place.uri);
                return Err(Error::request(Kind::Environment, message));
            }
        };
        Ok(Issuer::new(ledger, key))
    }

    /// The token's key, if the authority's certificate has it.
    fn key_in(&self, token: &Arc<dyn Token>, ledger: &Ledger) -> Result<TokenKey> {
        let key = ledger.key_in(token)?;
        let file = self.folder.join(CERTIFICATE);
        let certified = certificate::public_key(&read(&file)?).map_err(|e| failed(&file, &e))?;
        if certified == key.spki() {
            return Ok(key);
        }
        Err(failed(
            &file,
            &"it is of another key than that of the token",
        ))
    }

    fn key_in_file(&self) -> Result<rcgen::KeyPair> {
        let file = self.folder.join(KEY);
        let pem = SecretReaders::Owner.read(&file);
        let pem = pem.map_err(|e| failed(&file, &e))?;
        let text = std::str::from_utf8(&pem).map_err(|e| failed(&file, &e))?;
        rcgen::KeyPair::from_pem(text).map_err(|e| failed(&file, &e))
    }
}

impl Ledger {
    /// The authority's key in its token.
    fn key_in(&self, token: &Arc<dyn Token>) -> Result<TokenKey> {
        let uri = self.key.as_ref().map_or("", |place| &place.uri);
        let read: Uri = uri
            .parse()
            .map_err(|e: hsmux_token::UriError| Error::request(Kind::Invalid, e.to_string()))?;
        TokenKey::find(Arc::clone(token), &read)
    }
}

/// On a host: makes its key and a certificate request for this name, in a new folder.
pub fn request(name: &str, into: &Path) -> Result<()> {
    let name = known_as(name)?;
    let new = NewFolder::beside(into)?;
    let (key, pem) = issue::new_key()?;
    new.write("node.key", pem.as_bytes(), PRIVATE)?;
    new.write("node.csr", issue::request(&name, &key)?.as_bytes(), PUBLIC)?;
    new.settle(into)?;
    sync_parent(into)
}

/// A name for a new authority that no other has: hosts tell authorities and their lists apart by it.
pub fn new_name() -> Result<String> {
    let random = issue::serial()?;
    Ok(format!("hsmux nodes {}", hex::encode(&random[12..])))
}

/// Checks a host's name.
fn known_as(name: &str) -> Result<String> {
    node_name(name).map_err(|why| Error::request(Kind::Invalid, why))
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
