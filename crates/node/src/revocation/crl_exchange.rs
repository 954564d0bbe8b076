//! The state of one end of an exchange: its own lists, those of the other end, and lists to be stored.

use std::path::Path;

use hsmux_config::Identity;
use hsmux_state::FileVersions;
use hsmux_token::Error;
use hsmux_wire::decode;

use super::crl::{Crl, TrustedAuthorities};
use super::crl_store::{ADVICE, CrlStore};
use super::{CrlMessage, MOST};

/// The other end sends a list once: so many unverified lists are kept until files change.
const MAX_UNVERIFIED: usize = 4;

/// The state of one end.
pub struct CrlExchange {
    /// The other host, for the log.
    name: String,
    /// Files as they were read.
    seen: Option<(Identity, FileVersions)>,
    believed: TrustedAuthorities,
    /// The newest that this host has had, whatever has become of its file since.
    own: Vec<Crl>,
    /// The newest lists that this host has had, even if its file has changed since.
    theirs: Vec<Crl>,
    /// Newer lists that are not stored yet.
    untaken: Vec<Crl>,
    /// Why not.
    trouble: Option<String>,
    /// Lists that the current files do not verify (DER).
    refused: Vec<Vec<u8>>,
    complained: bool,
}

/// The next actions.
#[derive(Default)]
pub struct ExchangeStep {
    /// Lists to send.
    pub news: Vec<Crl>,
    /// The problem with the list of the other end; only the first time.
    pub problem: Option<String>,
}

impl CrlExchange {
    /// Nothing is known yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            seen: None,
            believed: TrustedAuthorities::nobody(),
            own: Vec::new(),
            theirs: Vec::new(),
            untaken: Vec::new(),
            trouble: None,
            refused: Vec::new(),
            complained: false,
        }
    }

    /// True if nothing is left to do, as long as the other end is silent.
    pub fn is_settled(&self, identity: &Identity) -> bool {
        self.untaken.is_empty() && self.seen == Some(state(identity))
    }

    /// Reads the files, and the list from the other end.
    pub fn settle(&mut self, identity: &Identity, told: Option<Vec<u8>>) -> ExchangeStep {
        let Some(file) = &identity.revoked else {
            return ExchangeStep::default();
        };
        self.look(identity, file);
        let problem = told.and_then(|told| self.hear(told).err());
        self.take(identity, file);
        ExchangeStep {
            news: self.news(),
            problem: problem.filter(|_| !std::mem::replace(&mut self.complained, true)),
        }
    }

    /// Reads changed files, and verifies kept lists by them.
    fn look(&mut self, identity: &Identity, file: &Path) {
        // The versions come first: a change during the read is read again.
        let now = Some(state(identity));
        if self.seen == now {
            return;
        }
        self.seen = now;
        // The users of the files report read errors; the lists in memory stay.
        if let Ok(store) = CrlStore::read(identity, file) {
            self.believed = store.believed;
            for list in store.lists {
                list.join(&mut self.own);
            }
        }
        for der in std::mem::take(&mut self.refused) {
            // The problem was reported when the list came.
            let _ = self.verify(der);
        }
    }

    fn hear(&mut self, told: Vec<u8>) -> Result<(), String> {
        let told: CrlMessage = decode(told).map_err(|e| e.to_string())?;
        self.verify(told.list)
    }

    fn verify(&mut self, der: Vec<u8>) -> Result<(), String> {
        let list = match Crl::checked(&der, &self.believed) {
            Ok(list) => list,
            Err(problem) => {
                if self.refused.len() == MAX_UNVERIFIED {
                    self.refused.remove(0);
                }
                self.refused.push(der);
                return Err(problem);
            }
        };
        list.join(&mut self.theirs);
        if list.is_news_to(&self.own) {
            list.join(&mut self.untaken);
        }
        Ok(())
    }

    /// Stores newer lists; failures are tried again.
    fn take(&mut self, identity: &Identity, file: &Path) {
        for list in std::mem::take(&mut self.untaken) {
            match CrlStore::put(identity, file, &list) {
                Ok(put) => {
                    if put {
                        let from = &self.name;
                        tracing::info!(from, "a newer list of revoked certificates is in place");
                    }
                    list.join(&mut self.own);
                }
                Err(error) => {
                    self.untaken.push(list);
                    self.fail(&error);
                }
            }
        }
    }

    /// Reports once why a list is not stored.
    fn fail(&mut self, error: &Error) {
        let error = error.to_string();
        if self.trouble.as_ref() != Some(&error) {
            let from = &self.name;
            tracing::warn!(
                from,
                "a newer list of revoked certificates is not in place: {error}; {ADVICE}"
            );
            self.trouble = Some(error);
        }
    }

    /// The lists that the other end lacks; it has them once these are sent.
    fn news(&mut self) -> Vec<Crl> {
        let own = self.own.iter();
        let news = own.filter(|list| list.is_news_to(&self.theirs));
        let news: Vec<_> = news.cloned().collect();
        for list in &news {
            list.join(&mut self.theirs);
            if list.der.len() > MOST {
                tracing::warn!(
                    "a list of revoked certificates has {} bytes, and is not handed on: {MOST} are the most",
                    list.der.len()
                );
            }
        }
        news.into_iter()
            .filter(|list| list.der.len() <= MOST)
            .collect()
    }
}

/// The files as they are.
fn state(identity: &Identity) -> (Identity, FileVersions) {
    let files = [Some(&identity.ca), identity.revoked.as_ref()];
    let files = files.into_iter().flatten().map(|file| &**file);
    (identity.clone(), FileVersions::of(files))
}
