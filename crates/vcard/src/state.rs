//! A card's persistent state.

use std::collections::BTreeMap;
use std::sync::Arc;

use hsmux_smartcard::StatusWord;
use serde::{Deserialize, Serialize};

use crate::dkek::DkekShares;
use crate::key::CardKey;

/// A warning at the top of each state file.
const WARNING: &str = "virtual card for tests: keys and PINs in the clear, protects nothing";

/// Files, keys, PINs. Cheap to clone: contents are shared.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistentState {
    warning: String,
    version: u32,
    /// The card's serial number.
    pub serial: String,
    /// Options of the last INITIALIZE DEVICE.
    pub options: u16,
    /// `None` until the card is initialised.
    pub user: Option<PinRecord>,
    /// `None` until the card is initialised.
    pub so: Option<PinRecord>,
    /// `None` if keys cannot be wrapped.
    pub dkek: Option<DkekShares>,
    /// Transparent files by their identifier.
    pub files: BTreeMap<u16, Content>,
    /// Keys by their id; 0 is the device's own.
    pub keys: BTreeMap<u8, KeyRecord>,
}

/// A PIN and its retry counter.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinRecord {
    /// In the form that hosts send.
    pub value: Content,
    /// Remaining tries; at 0 it is blocked.
    pub tries: u8,
    /// Tries after a success.
    pub max: u8,
    /// It can only be changed.
    #[serde(default)]
    pub transport: bool,
}

/// A key with its conditions of use.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// The key.
    pub key: Arc<CardKey>,
    /// Permitted algorithms; empty: all.
    #[serde(default)]
    pub algorithms: Content,
    /// The number of remaining uses, if they are counted.
    #[serde(default)]
    pub uses: Option<u32>,
}

/// Bytes, in hexadecimal in the state file.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Content(Arc<[u8]>);

/// Version of the state file.
const VERSION: u32 = 1;

impl PersistentState {
    /// A card in factory state, before its device key and files are created.
    pub fn new(serial: &str) -> Self {
        Self {
            warning: WARNING.to_owned(),
            version: VERSION,
            serial: serial.to_owned(),
            options: 0,
            user: None,
            so: None,
            dkek: None,
            files: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// Whether this version can read the state.
    pub fn readable(&self) -> bool {
        self.version == VERSION && self.keys.contains_key(&0)
    }

    /// The key with this id.
    pub fn key(&self, id: u8) -> Result<&KeyRecord, StatusWord> {
        self.keys.get(&id).ok_or(StatusWord::FILE_NOT_FOUND)
    }

    /// Approximate size of keys and files in bytes, with overhead.
    pub fn size(&self) -> usize {
        const OVERHEAD: usize = 32;
        let files = self.files.values().map(|content| content.len() + OVERHEAD);
        let keys = self
            .keys
            .values()
            .map(|record| record.key.size() + OVERHEAD);
        files.sum::<usize>() + keys.sum::<usize>()
    }
}

impl KeyRecord {
    /// A key without conditions.
    pub fn new(key: CardKey) -> Self {
        Self {
            key: Arc::new(key),
            algorithms: Content::default(),
            uses: None,
        }
    }

    /// Whether it may be used with this algorithm.
    pub fn allows(&self, algorithm: u8) -> bool {
        self.algorithms.is_empty() || self.algorithms.contains(&algorithm)
    }
}

impl std::ops::Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl TryFrom<String> for Content {
    type Error = hex::FromHexError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        Ok(hex::decode(digits)?.into())
    }
}

impl From<Content> for String {
    fn from(content: Content) -> Self {
        hex::encode(content.0)
    }
}
