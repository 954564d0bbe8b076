//! Transport keys: an RSA key pair of each token, whose public half is pinned in the state folder.
//!
//! `transport.json` holds the pins and a MAC over them, by a key that only the owner of the state
//! folder can read: a pin that somebody else has put there is not used.

mod key;

use super::channel::unwraps;
use super::token_access::TokenAccess;
use hmac::{Hmac, Mac};
use hsmux_software::PublicKey;
use hsmux_state::failed;
use hsmux_token::ck::*;
use hsmux_token::permissions::SecretReaders;
use hsmux_token::sync::Mutex;
use hsmux_token::{Class, Error, Kind, Object, ObjectId, Result};
use key::{discard, existing, generate, guarded, label, prove};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The prefix of the labels of transport keys; the serial number follows.
pub const TRANSPORT_LABEL: &str = "hsmux-transport-";

/// A transport key that has proved itself.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct PinnedKey {
    /// The member's name when it was enrolled.
    pub name: String,
    /// The public key, DER of its SubjectPublicKeyInfo in hexadecimal.
    spki: String,
    /// The mechanisms (`CKM_*`) by which the token unwraps keys under an AES key.
    pub unwraps: Vec<u64>,
    /// The hash of its RSA-OAEP (`CKM_*`). Keys of before, which have none, may decipher as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oaep_hash: Option<u64>,
    /// The [`RULES`] by which the key was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<u8>,
}

/// Rules for transport keys: 1 adds that they recover no signature and are no shorter than new ones.
const RULES: u8 = 1;

impl PinnedKey {
    /// The public half.
    pub fn public_key(&self) -> Result<PublicKey> {
        let spki = hex::decode(&self.spki).map_err(|e| {
            Error::pool(
                Kind::Environment,
                format!("transport key of {}: {e}", self.name),
            )
        })?;
        PublicKey::from_spki(&spki)
    }

    /// The hash of its RSA-OAEP.
    pub fn oaep_hash(&self) -> u64 {
        self.oaep_hash.unwrap_or(CKM_SHA_1)
    }

    /// True if it has to be replaced when its token is in service.
    pub fn is_old(&self) -> bool {
        self.oaep_hash.is_none() || self.rules < Some(RULES)
    }

    /// The name of the private half on its token.
    pub fn private_key(&self) -> Result<ObjectId> {
        let spki = self.public_key()?;
        Ok(ObjectId::of_public_key(Class::PRIVATE_KEY, spki.spki()))
    }
}

/// The pins by serial number, as in the state folder.
pub(super) struct TransportKeys {
    path: PathBuf,
    key: Zeroizing<[u8; 32]>,
    pins: Mutex<BTreeMap<String, PinnedKey>>,
}

#[derive(Serialize, Deserialize)]
struct PinFile {
    pins: BTreeMap<String, PinnedKey>,
    mac: String,
}

impl TransportKeys {
    /// Reads the pins; a file that was not written here is refused.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("transport.json");
        let key = mac_key(&folder.join("transport.key"))?;
        let pins = match std::fs::read(&path) {
            Ok(json) => authentic(&key, &json).ok_or_else(|| forged(&path))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(failed("read", &path, &e)),
        };
        Ok(Self {
            path,
            key,
            pins: Mutex::new(pins),
        })
    }

    /// The pin of a token.
    pub fn pin(&self, serial: &str) -> Option<PinnedKey> {
        self.pins.lock().get(serial).cloned()
    }

    /// True if an object is half of a transport key: no application may use it.
    pub fn is_ours(&self, id: ObjectId) -> bool {
        let same = |pin: &PinnedKey| pin.private_key().is_ok_and(|key| key.name == id.name);
        self.pins.lock().values().any(same)
    }

    /// The pin of a token that is present; the first time its transport key is made, checked and
    /// pinned.
    pub fn enrol(&self, access: TokenAccess, serial: &str) -> Result<PinnedKey> {
        if let Some(pin) = self.pin(serial).filter(|pin| !pin.is_old()) {
            return Ok(pin);
        }
        if !access.offers(CKM_RSA_PKCS_OAEP, CKF_UNWRAP) {
            return Err(Error::request(
                Kind::Unsupported,
                format!(
                    "{}: has no unwrapping by CKM_RSA_PKCS_OAEP, so no key can be brought to it: \
                     copy those that another token holds under a key that both hold (hsmux key clone \
                     --wrapping-key), or use the card's own means",
                    access.name
                ),
            ));
        }
        let found = existing(access, serial)?;
        let is_new = found.is_none();
        let private = found.map_or_else(|| generate(access, serial), Ok)?;
        let proved = guarded(access, &private)
            .and_then(|public| Ok((prove(access, private.id, &public)?, public)));
        let (oaep_hash, public) = proved.inspect_err(|_| {
            if is_new {
                discard(access, private.id);
            }
        })?;
        let pin = PinnedKey {
            name: access.name.to_owned(),
            spki: hex::encode(public.spki()),
            unwraps: unwraps(access.token),
            oaep_hash: Some(oaep_hash),
            rules: Some(RULES),
        };
        self.write(serial, pin.clone())?;
        tracing::info!(member = access.name, serial, "transport key pinned");
        Ok(pin)
    }

    /// Transport keys of a token that no pin names any more, both halves of each.
    pub fn leftovers(&self, serial: &str, there: &[Object]) -> Vec<ObjectId> {
        let Some(current) = self.pin(serial).and_then(|pin| pin.private_key().ok()) else {
            return Vec::new();
        };
        let label = label(serial).into_bytes();
        let left = there.iter().filter(|object| {
            let half = matches!(object.id.class, Class::PRIVATE_KEY | Class::PUBLIC_KEY);
            half && object.id.name != current.name
                && object.attributes.get(CKA_LABEL) == Some(&*label)
        });
        left.map(|object| object.id).collect()
    }

    fn write(&self, serial: &str, pin: PinnedKey) -> Result<()> {
        let mut known = self.pins.lock();
        let mut pins = known.clone();
        pins.insert(serial.to_owned(), pin);
        let mac = hex::encode(mac(&self.key, &pins).finalize().into_bytes());
        let pinned = PinFile { pins, mac };
        let json = serde_json::to_vec_pretty(&pinned)
            .map_err(|e| Error::pool(Kind::Environment, e.to_string()))?;
        hsmux_state::replace(&self.path, &json, 0o600)
            .map_err(|e| failed("write", &self.path, &e))?;
        *known = pinned.pins;
        Ok(())
    }
}

#[cfg(test)]
impl TransportKeys {
    /// Pins a key as versions before have done it.
    pub fn pin_as_before(&self, serial: &str, name: &str, private: &Object, unwraps: Vec<u64>) {
        self.pin_with(serial, name, private, unwraps, None);
    }

    /// The same of versions that knew the hash of its RSA-OAEP.
    pub fn pin_with_hash(
        &self,
        serial: &str,
        name: &str,
        private: &Object,
        unwraps: Vec<u64>,
        hash: u64,
    ) {
        self.pin_with(serial, name, private, unwraps, Some(hash));
    }

    fn pin_with(
        &self,
        serial: &str,
        name: &str,
        private: &Object,
        unwraps: Vec<u64>,
        oaep_hash: Option<u64>,
    ) {
        let public = PublicKey::from_attributes(&private.attributes).unwrap();
        let pin = PinnedKey {
            name: name.to_owned(),
            spki: hex::encode(public.spki()),
            unwraps,
            oaep_hash,
            rules: None,
        };
        self.write(serial, pin).unwrap();
    }
}

/// The key of the MAC, made the first time.
fn mac_key(path: &Path) -> Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    match SecretReaders::Owner.read_state(path) {
        Ok(bytes) if bytes.len() == key.len() => key.copy_from_slice(&bytes),
        Ok(_) => return Err(forged(path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            *key = super::random()?;
            hsmux_state::replace(path, key.as_slice(), 0o600)
                .map_err(|e| failed("write", path, &e))?;
        }
        Err(e) => return Err(failed("read", path, &e)),
    }
    Ok(key)
}

fn mac(key: &[u8; 32], pins: &BTreeMap<String, PinnedKey>) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(b"hsmux transport pins 1\0");
    for (serial, pin) in pins {
        let unwraps: Vec<u8> = pin.unwraps.iter().flat_map(|m| m.to_be_bytes()).collect();
        for part in [
            serial.as_bytes(),
            pin.name.as_bytes(),
            pin.spki.as_bytes(),
            &unwraps,
        ] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        if let Some(hash) = pin.oaep_hash {
            mac.update(&[1]);
            mac.update(&hash.to_be_bytes());
        }
        if let Some(rules) = pin.rules {
            mac.update(&[2, rules]);
        }
    }
    mac
}

/// The pins of a file whose MAC is right.
fn authentic(key: &[u8; 32], json: &[u8]) -> Option<BTreeMap<String, PinnedKey>> {
    let pinned: PinFile = serde_json::from_slice(json).ok()?;
    let tag = hex::decode(&pinned.mac).ok()?;
    mac(key, &pinned.pins).verify_slice(&tag).ok()?;
    Some(pinned.pins)
}

fn forged(path: &Path) -> Error {
    Error::pool(
        Kind::Environment,
        format!(
            "{}: was not written by this hsmux, or was changed since: no key is sent to the tokens \
             it names. If that was you, remove it, and the tokens are enrolled anew",
            path.display()
        ),
    )
}
