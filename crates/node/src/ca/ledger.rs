//! The ledger of an authority: issued and revoked certificates.

use std::path::PathBuf;

use hsmux_token::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::issue::Subject;
use super::now;
use crate::certificate::serial;

/// The file `issued.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ledger {
    /// The authority's name, as in its certificate and in all that it issues.
    pub authority: String,
    /// When it was made, in seconds after 1970.
    pub since: u64,
    /// When its certificate ends.
    pub until: u64,
    /// The number of the newest revocation list: hosts reject lower ones.
    pub lists: u64,
    /// The place of its key, if that is in a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<TokenKeyRef>,
    /// The issued certificates, in order.
    pub issued: Vec<IssuedCertificate>,
}

/// A key in a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenKeyRef {
    /// The private key, and the token that has it, as a PKCS#11 URI.
    pub uri: String,
    /// The vendor's module; without one it is in the pool.
    pub module: Option<PathBuf>,
}

/// A certificate of a host. Times are seconds after 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// The host's name.
    pub name: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// When it was issued.
    pub since: u64,
    /// When it ends.
    pub until: u64,
    /// When it was revoked.
    pub revoked: Option<u64>,
}

impl Ledger {
    /// Nothing is issued yet.
    pub fn new(authority: &str, until: u64, key: Option<TokenKeyRef>) -> Self {
        Self {
            authority: authority.to_owned(),
            since: now(),
            until,
            lists: 1,
            key,
            issued: Vec::new(),
        }
    }

    /// The text of the file.
    pub fn written(&self) -> Result<String> {
        let written = serde_json::to_string_pretty(self);
        written
            .map_err(|e| Error::request(Kind::Invalid, format!("the list cannot be written: {e}")))
    }

    /// A certificate is issued.
    pub fn add(&mut self, subject: &Subject<'_>) -> IssuedCertificate {
        let issued = IssuedCertificate {
            name: subject.name.to_owned(),
            serial: serial(&subject.serial),
            since: now(),
            until: subject.until,
            revoked: None,
        };
        self.issued.push(issued.clone());
        issued
    }

    /// It was not handed out.
    pub fn forget(&mut self, issued: &IssuedCertificate) {
        self.issued.retain(|other| other.serial != issued.serial);
    }

    /// Revokes by name or serial number; returns the certificates that were valid before.
    pub fn revoke(&mut self, which: &str) -> Result<Vec<IssuedCertificate>> {
        let digits = which.to_ascii_lowercase().replace(':', "");
        let digits = digits.trim_start_matches('0');
        let name = which.to_ascii_lowercase();
        let meant =
            |issued: &&mut IssuedCertificate| issued.name == name || issued.serial == digits;
        let mut known = false;
        let mut taken = Vec::new();
        for issued in self.issued.iter_mut().filter(meant) {
            known = true;
            if issued.revoked.is_none() {
                issued.revoked = Some(now());
                taken.push(issued.clone());
            }
        }
        if !known {
            let message = format!(
                "{which}: no certificate has that name or serial number; \
                                   hsmux node list shows all"
            );
            return Err(Error::request(Kind::UnknownObject, message));
        }
        // The number grows even without a change: the last list may not have been written. It follows the clock,
        // since a folder from a backup lacks the numbers that hosts have seen.
        self.lists = (self.lists + 1).max(now());
        Ok(taken)
    }
}
