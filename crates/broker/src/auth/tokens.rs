//! Bearer tokens: made here, shown once, stored as hashes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hsmux_state::FileVersions;
use hsmux_token::{Error, Kind, Result, Secret};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::store::{ClientToken, Store, TokenHash, now};

/// The current tokens, for requests.
pub struct ClientTokens {
    store: Arc<Store>,
    known: ArcSwap<HashMap<TokenHash, ClientToken>>,
    /// The store's version when `known` was read.
    version: Mutex<Option<i64>>,
    /// The versions of the store's files, at that time or before.
    stamp: ArcSwap<FileVersions>,
}

/// A token that was just made.
pub struct NewToken {
    /// The token itself. The broker keeps no copy.
    pub secret: Secret,
    /// The record that the store keeps.
    pub kept: ClientToken,
}

/// The prefix by which people and secret scanners recognise a token.
const PREFIX: &str = "hsmb.";

/// SQLite writes a change to its log, waits for the disk, and only then shows it. A read in between gives the old
/// state, although the log's file is the newest.
const WRITE_SETTLE_TIME: Duration = Duration::from_secs(10);

impl ClientTokens {
    /// All tokens of the store.
    pub fn new(store: Arc<Store>) -> Result<Self> {
        let tokens = Self {
            store,
            known: ArcSwap::default(),
            version: Mutex::new(None),
            stamp: ArcSwap::default(),
        };
        tokens.refresh()?;
        Ok(tokens)
    }

    /// The owner of a token. The hash is looked up, never compared byte by byte, so the time tells an attacker
    /// nothing.
    pub fn owner(&self, token: &str) -> Option<ClientToken> {
        let known = self.known.load();
        let found = known.get(&hash(token))?;
        found.is_valid().then(|| found.clone())
    }

    /// True if no process has written to the store since. This check does not open the store: unknown tokens, sent
    /// again and again, cost no query each.
    pub fn are_current(&self) -> bool {
        **self.stamp.load() == self.store.stamp()
    }

    /// Reads changes that a command has made. Blocks.
    pub fn refresh(&self) -> Result<()> {
        let mut version = self.version.lock();
        // A write during this read makes the cache stale at once.
        let stamp = self.store.stamp();
        let now = self.store.foreign_version()?;
        if *version != Some(now) {
            let tokens = self.store.tokens()?;
            let by_hash = tokens.into_iter().map(|token| (token.hash, token));
            self.known.store(Arc::new(by_hash.collect()));
            *version = Some(now);
        }
        let known = if stamp.is_older_than(WRITE_SETTLE_TIME) {
            stamp
        } else {
            FileVersions::default()
        };
        self.stamp.store(Arc::new(known));
        Ok(())
    }
}

/// Makes a token; it is valid once a store has [its hash](Store::put_token).
pub fn issue(name: &str, lifetime: Option<Duration>) -> Result<NewToken> {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(word) {
        let message = format!("{name:?}: a token's name is letters, digits, '-', '_', '.' and '@'");
        return Err(Error::request(Kind::Invalid, message));
    }
    let mut random = [0; 40];
    getrandom::fill(&mut random)
        .map_err(|e| Error::pool(Kind::Environment, format!("no random bytes: {e}")))?;
    let (secret, id) = random.split_at(32);
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
    let kept = ClientToken {
        id: hex::encode(id),
        name: name.to_owned(),
        created: now().into(),
        expires: lifetime.map(|lifetime| now().saturating_add(lifetime.as_secs()).into()),
        hash: hash(&text),
    };
    Ok(NewToken {
        secret: Secret::new(text.into_bytes()),
        kept,
    })
}

fn hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lets_its_owner_in_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.sqlite");
        let tokens = ClientTokens::new(Arc::new(Store::open(&file).unwrap())).unwrap();
        let beside = Store::open_shared(&file).unwrap();
        let new = issue("billing", None).unwrap();
        beside.put_token(&new.kept).unwrap();
        let secret = String::from_utf8(new.secret.expose().to_vec()).unwrap();
        assert_eq!(tokens.owner(&secret), None);
        assert!(!tokens.are_current());
        tokens.refresh().unwrap();
        assert!(!tokens.are_current(), "others may be writing just now");
        assert_eq!(tokens.owner(&secret), Some(new.kept.clone()));
        assert_eq!(tokens.owner(&secret[..secret.len() - 1]), None);
        beside.revoke(&new.kept.id).unwrap();
        tokens.refresh().unwrap();
        assert_eq!(tokens.owner(&secret), None);
        assert!(issue("a b", None).is_err());
    }
}
