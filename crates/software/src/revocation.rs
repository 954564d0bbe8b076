//! Certificate revocation lists (RFC 5280, section 5) of the authorities whose certificates clients show.

mod parsed_crl;
mod verified_crl;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use der::{Decode, Encode};
use x509_cert::Certificate;

pub use self::parsed_crl::ParsedCrl;
use self::parsed_crl::number_of;
use self::verified_crl::{VerifiedCrl, blocks, has_signed, read};

/// All lists of some authorities.
#[derive(Clone, Default, Debug)]
pub struct Revocation {
    lists: Vec<VerifiedCrl>,
    authorities: Vec<ShownCertificate>,
}

/// A list that stays in use because its file has an older one now (RFC 5280, section 5.1.2.4: thisUpdate), or none.
#[derive(Debug)]
pub struct OutdatedCrl {
    /// The file with the list.
    pub file: PathBuf,
    /// The authority's name.
    pub issuer: String,
}

/// Certificates between a client's and a root at most.
const DEPTH: usize = 8;

/// Certificates that a client sends at most: each one costs the verification of a signature.
const MOST_SENT: usize = 16;

/// Why a certificate is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RevocationError {
    /// It is on a list.
    Revoked {
        /// The authority's name.
        issuer: String,
        /// The certificate's number.
        serial: String,
    },
    /// The list of its authority, in this file, is too old.
    Expired(PathBuf),
    /// No list is of its authority.
    NoList(String),
    /// It cannot be read.
    Unreadable(String),
}

/// The error of a file.
#[derive(Debug)]
pub struct FileProblem {
    /// The file.
    pub file: PathBuf,
    /// Why, and what to do.
    pub why: String,
}

impl Revocation {
    /// Reads files of lists, PEM or DER. Each list has to be signed by one of these authorities, given by their
    /// certificates (DER).
    pub fn read<'a>(
        files: impl IntoIterator<Item = &'a Path>,
        authorities: &[Vec<u8>],
    ) -> Result<Self, FileProblem> {
        let mut lists = Vec::new();
        for file in files {
            let wrong = |why: String| FileProblem {
                file: file.to_owned(),
                why,
            };
            for der in read(file).and_then(blocks).map_err(wrong)? {
                lists.push(VerifiedCrl::read(file, &der, authorities).map_err(wrong)?);
            }
        }
        let authorities = authorities.iter().map(|der| ShownCertificate::read(der));
        Ok(Self {
            lists,
            authorities: authorities.filter_map(Result::ok).collect(),
        })
    }

    /// Keeps the lists that were in use if an authority's lists are all older now, or gone: somebody may have put an old
    /// list there to bring back a revoked certificate. Answers which lists stay.
    pub fn keep_newer(&mut self, before: &Self) -> Vec<OutdatedCrl> {
        let mut outdated = Vec::new();
        for authority in &self.authorities {
            let newest = |lists: &[VerifiedCrl]| {
                let own = lists.iter().filter(|list| list.authority == authority.der);
                own.map(|list| list.since).max()
            };
            let (now, then) = (newest(&self.lists), newest(&before.lists));
            if now >= then {
                continue;
            }
            self.lists.retain(|list| list.authority != authority.der);
            let own = before.lists.iter();
            let own = own.filter(|list| list.authority == authority.der);
            for list in own {
                outdated.push(OutdatedCrl {
                    file: list.file.clone(),
                    issuer: list.issuer_name.clone(),
                });
                self.lists.push(list.clone());
            }
        }
        outdated
    }

    /// Checks the first certificate of a chain (DER) at a time, after 1970: a current list of its authority must not
    /// name it. The other certificates of the chain are checked if they have lists, and so are authorities above them
    /// that the client has not sent.
    pub fn judge<'a>(
        &self,
        chain: impl IntoIterator<Item = &'a [u8]>,
        now: Duration,
    ) -> Result<(), RevocationError> {
        let chain = chain.into_iter().take(MOST_SENT + 1);
        let chain = chain.map(ShownCertificate::read);
        let chain = chain.collect::<Result<Vec<_>, _>>()?;
        if chain.len() > MOST_SENT {
            let why = format!("more than {MOST_SENT} certificates were sent");
            return Err(RevocationError::Unreadable(why));
        }
        for (at, shown) in chain.iter().enumerate() {
            self.judge_one(shown, now, at == 0)?;
        }
        let mut all = chain.iter();
        all.try_for_each(|shown| self.judge_issuers(shown, now, DEPTH))
    }

    /// Refuses a certificate if every known authority that has signed it is revoked. A certificate that the client has
    /// sent is no authority: its name says nothing.
    fn judge_issuers(
        &self,
        shown: &ShownCertificate,
        now: Duration,
        depth: usize,
    ) -> Result<(), RevocationError> {
        if depth == 0 {
            return Ok(());
        }
        let mut refused = Ok(());
        for issuer in &self.authorities {
            if issuer.subject != shown.issuer || issuer.der == shown.der {
                continue;
            }
            let signed = has_signed(&issuer.der, &shown.certificate);
            if signed == Some(false) {
                continue;
            }
            let judged = self
                .judge_one(issuer, now, false)
                .and_then(|()| self.judge_issuers(issuer, now, depth - 1));
            match signed {
                Some(_) if judged.is_ok() => return Ok(()),
                Some(_) => refused = judged,
                // One of several of this name: it may be any of them.
                None => judged?,
            }
        }
        refused
    }

    /// Checks that no list names one certificate.
    fn judge_one(
        &self,
        shown: &ShownCertificate,
        now: Duration,
        needs_list: bool,
    ) -> Result<(), RevocationError> {
        let certificate = shown.certificate.tbs_certificate();
        let lists = self.lists.iter();
        let mut lists = lists.filter(|list| list.issuer == shown.issuer).peekable();
        if lists.peek().is_none() && needs_list {
            return Err(RevocationError::NoList(certificate.issuer().to_string()));
        }
        let serial = number_of(certificate.serial_number().as_bytes());
        for list in lists {
            if list.serials.contains(serial) {
                return Err(RevocationError::Revoked {
                    issuer: certificate.issuer().to_string(),
                    serial: certificate.serial_number().to_string(),
                });
            }
            if list.until <= now {
                return Err(RevocationError::Expired(list.file.clone()));
            }
        }
        Ok(())
    }

    /// [`Self::judge`], if there are lists at all.
    pub fn judge_if_any<'a>(
        &self,
        chain: impl IntoIterator<Item = &'a [u8]>,
        now: Duration,
    ) -> Result<(), RevocationError> {
        if self.lists.is_empty() {
            return Ok(());
        }
        self.judge(chain, now)
    }

    /// The files whose lists are too old at a time, after 1970.
    pub fn expired(&self, now: Duration) -> impl Iterator<Item = &Path> {
        let old = self.lists.iter().filter(move |list| list.until <= now);
        old.map(|list| &*list.file)
    }
}

/// A certificate and its names (DER).
#[derive(Clone, Debug)]
struct ShownCertificate {
    der: Vec<u8>,
    certificate: Certificate,
    subject: Vec<u8>,
    issuer: Vec<u8>,
}

impl ShownCertificate {
    fn read(der: &[u8]) -> Result<Self, RevocationError> {
        let unreadable = |error: der::Error| RevocationError::Unreadable(error.to_string());
        let certificate = Certificate::from_der(der).map_err(unreadable)?;
        let signed = certificate.tbs_certificate();
        Ok(Self {
            subject: signed.subject().to_der().map_err(unreadable)?,
            issuer: signed.issuer().to_der().map_err(unreadable)?,
            certificate,
            der: der.to_vec(),
        })
    }
}

impl fmt::Display for RevocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revoked { issuer, serial } => {
                write!(f, "the certificate {serial} of {issuer} is revoked")
            }
            Self::Expired(file) => write!(
                f,
                "the certificate revocation list {} has expired: put a new one there",
                file.display()
            ),
            Self::NoList(issuer) => write!(
                f,
                "client_crl has no certificate revocation list of {issuer}: add one"
            ),
            Self::Unreadable(why) => write!(f, "the certificate cannot be read: {why}"),
        }
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl fmt::Display for OutdatedCrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, issuer) = (self.file.display(), &self.issuer);
        write!(
            f,
            "{file}: its list of {issuer} is older than the one in use, or gone; that one stays in use: put a newer one there"
        )
    }
}
