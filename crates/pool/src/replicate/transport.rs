//! Transport keys: an RSA key pair of each token, whose public half is pinned in the state folder.
//!
//! `transport.json` holds the pins and a MAC over them, by a key that only the owner of the state
//! folder can read: a pin that somebody else has put there is not used.

use super::channel::{OAEP_HASHES, oaep, unwraps};
use super::files;
use super::site::Site;
use hmac::{Hmac, Mac};
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Class, Error, Kind, Mechanism, Object, ObjectId, Operation, Result, Verb,
};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// What the labels of transport keys begin with; the serial number follows.
pub const TRANSPORT_LABEL: &str = "hsmux-transport-";

/// Bits of a new transport key: as strong as AES-128 (SP 800-57). A token that makes no such key makes its largest.
const MODULUS_BITS: u64 = 3072;

/// The text of the MAC by which a token proves that it has unwrapped a key.
const PROOF: &[u8] = b"hsmux transport key proof 2";

/// A transport key that has proved itself.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Pin {
    /// The member's name when it was enrolled.
    pub name: String,
    /// The public key, DER of its SubjectPublicKeyInfo in hexadecimal.
    spki: String,
    /// The mechanisms (`CKM_*`) by which the token unwraps keys under an AES key.
    pub unwraps: Vec<u64>,
    /// The hash of its RSA-OAEP (`CKM_*`). Keys of before, which have none, may decipher as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oaep_hash: Option<u64>,
}

impl Pin {
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

    /// Whether it is to be replaced when its token is there.
    pub fn is_old(&self) -> bool {
        self.oaep_hash.is_none()
    }

    /// The name of the private half on its token.
    pub fn private_key(&self) -> Result<ObjectId> {
        let spki = self.public_key()?;
        Ok(ObjectId::of_public_key(Class::PRIVATE_KEY, spki.spki()))
    }
}

/// The pins by serial number, as they stand in the state folder.
pub(super) struct Transport {
    path: PathBuf,
    key: Zeroizing<[u8; 32]>,
    pins: Mutex<BTreeMap<String, Pin>>,
}

#[derive(Serialize, Deserialize)]
struct Pinned {
    pins: BTreeMap<String, Pin>,
    mac: String,
}

impl Transport {
    /// Reads the pins; a file that was not written here is refused.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("transport.json");
        let key = mac_key(&folder.join("transport.key"))?;
        let pins = match std::fs::read(&path) {
            Ok(json) => authentic(&key, &json).ok_or_else(|| forged(&path))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(files::failed("read", &path, &e)),
        };
        Ok(Self {
            path,
            key,
            pins: Mutex::new(pins),
        })
    }

    /// The pin of a token.
    pub fn pin(&self, serial: &str) -> Option<Pin> {
        self.pins.lock().get(serial).cloned()
    }

    /// Whether an object is half of a transport key: no application may work with it.
    pub fn is_ours(&self, id: ObjectId) -> bool {
        let same = |pin: &Pin| pin.private_key().is_ok_and(|key| key.name == id.name);
        self.pins.lock().values().any(same)
    }

    /// The pin of a token that is present; the first time its transport key is made, checked and
    /// pinned.
    pub fn enrol(&self, site: Site, serial: &str) -> Result<Pin> {
        if let Some(pin) = self.pin(serial).filter(|pin| !pin.is_old()) {
            return Ok(pin);
        }
        if !site.offers(CKM_RSA_PKCS_OAEP, CKF_UNWRAP) {
            return Err(Error::request(
                Kind::Unsupported,
                format!(
                    "{}: has no unwrapping by CKM_RSA_PKCS_OAEP, so no key can be brought to it: \
                     copy those that another token holds under a key that both hold (hsmux key clone \
                     --wrapping-key), or use the card's own means",
                    site.name
                ),
            ));
        }
        let private = match existing(site, serial)? {
            Some(private) => private,
            None => generate(site, serial)?,
        };
        let public = guarded(site, &private)?;
        let oaep_hash = Some(prove(site, private.id, &public)?);
        let pin = Pin {
            name: site.name.to_owned(),
            spki: hex::encode(public.spki()),
            unwraps: unwraps(site.token),
            oaep_hash,
        };
        self.write(serial, pin.clone())?;
        tracing::info!(member = site.name, serial, "transport key pinned");
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

    fn write(&self, serial: &str, pin: Pin) -> Result<()> {
        let mut known = self.pins.lock();
        let mut pins = known.clone();
        pins.insert(serial.to_owned(), pin);
        let mac = hex::encode(mac(&self.key, &pins).finalize().into_bytes());
        let pinned = Pinned { pins, mac };
        let json = serde_json::to_vec_pretty(&pinned)
            .map_err(|e| Error::pool(Kind::Environment, e.to_string()))?;
        files::replace(&self.path, &json, 0o600)?;
        *known = pinned.pins;
        Ok(())
    }
}

#[cfg(test)]
impl Transport {
    /// Pins a key as versions before have done it.
    pub fn pin_as_before(&self, serial: &str, name: &str, private: &Object, unwraps: Vec<u64>) {
        let public = PublicKey::from_attributes(&private.attributes).unwrap();
        let pin = Pin {
            name: name.to_owned(),
            spki: hex::encode(public.spki()),
            unwraps,
            oaep_hash: None,
        };
        self.write(serial, pin).unwrap();
    }
}

/// The transport private key that an earlier run left on the token.
fn existing(site: Site, serial: &str) -> Result<Option<Object>> {
    let wanted = Attributes::default()
        .with_number(CKA_CLASS, CKO_PRIVATE_KEY)
        .with(CKA_LABEL, label(serial).into_bytes());
    let snapshot = site.token.objects().map_err(|e| e.at(site.name))?;
    let found = snapshot.objects.iter().find(|object| {
        // A raw RSA signature deciphers as well.
        let only_unwraps = object.attributes.flag(CKA_DECRYPT) == Some(false)
            && object.attributes.flag(CKA_SIGN) != Some(true);
        only_unwraps && object.attributes.matches(&wanted)
    });
    Ok(found.cloned())
}

fn generate(site: Site, serial: &str) -> Result<Object> {
    let making = site.token.info();
    let largest = making
        .mechanism(CKM_RSA_PKCS_KEY_PAIR_GEN)
        .map_or(MODULUS_BITS, |info| info.max_key);
    let bits = match largest {
        0 => MODULUS_BITS,
        largest => largest.min(MODULUS_BITS),
    };
    // An older key of this label may be there still, whose halves are others.
    let id = [label(serial).as_bytes(), b".", &super::random::<4>()?].concat();
    let named = Attributes::default()
        .with_flag(CKA_TOKEN, true)
        .with(CKA_LABEL, label(serial).into_bytes())
        .with(CKA_ID, id);
    let pair = Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: named
            .clone()
            .with_number(CKA_MODULUS_BITS, bits)
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
            .with_flag(CKA_WRAP, true)
            .with_flag(CKA_ENCRYPT, false)
            .with_flag(CKA_VERIFY, false),
        private: named
            .with_flag(CKA_PRIVATE, true)
            .with_flag(CKA_SENSITIVE, true)
            .with_flag(CKA_EXTRACTABLE, false)
            .with_flag(CKA_UNWRAP, true)
            .with_flag(CKA_DECRYPT, false)
            .with_flag(CKA_SIGN, false),
    };
    let made = site.run(&pair)?.into_objects()?;
    let private = made
        .into_iter()
        .find(|made| made.object.id.class == Class::PRIVATE_KEY);
    private.map(|made| made.object).ok_or_else(|| {
        Error::protocol(format!(
            "{}: C_GenerateKeyPair made no private key",
            site.name
        ))
    })
}

/// The public half of a transport key that was born on its token and cannot leave it.
fn guarded(site: Site, private: &Object) -> Result<PublicKey> {
    let wanted = [
        (CKA_LOCAL, true, "CKA_LOCAL"),
        (CKA_SENSITIVE, true, "CKA_SENSITIVE"),
        (CKA_EXTRACTABLE, false, "CKA_EXTRACTABLE"),
        (CKA_DECRYPT, false, "CKA_DECRYPT"),
        (CKA_SIGN, false, "CKA_SIGN"),
    ];
    for (kind, value, name) in wanted {
        // Tokens need not say whether it signs.
        let silent = kind == CKA_SIGN && private.attributes.flag(kind).is_none();
        if private.attributes.flag(kind) != Some(value) && !silent {
            return Err(Error::token(
                Kind::Unproved,
                format!(
                    "{}: the transport key {} is not guarded by the token ({name} is not {value}): \
                     delete it, so that a new one is made",
                    site.name, private.id
                ),
            ));
        }
    }
    PublicKey::from_attributes(&private.attributes).map_err(|e| e.at(site.name))
}

/// The token unwraps what was enciphered to the key: answers the best hash by which it does.
fn prove(site: Site, private: ObjectId, public: &PublicKey) -> Result<u64> {
    let mut why = None;
    for hash in OAEP_HASHES {
        match unwraps_a_challenge(site, private, public, hash) {
            Ok(true) => return Ok(hash),
            Ok(false) => {}
            Err(error) if error.ends_connection() => return Err(error),
            // Tokens that have no such hash say so in many ways.
            Err(error) => why = Some(error),
        }
    }
    let why = why.map_or_else(String::new, |error| format!(": {error}"));
    Err(Error::token(
        Kind::Unproved,
        format!(
            "{}: the transport key {private} did not unwrap its challenge{why}",
            site.name
        ),
    ))
}

fn unwraps_a_challenge(
    site: Site,
    private: ObjectId,
    public: &PublicKey,
    hash: u64,
) -> Result<bool> {
    let challenge = super::random::<32>()?;
    // Where the token computes no HMAC, the challenge itself is read.
    let macs = site.offers(CKM_SHA256_HMAC, CKF_SIGN);
    let template = Attributes::default()
        .with_number(CKA_CLASS, CKO_SECRET_KEY)
        .with_number(CKA_KEY_TYPE, CKK_GENERIC_SECRET)
        .with_flag(CKA_TOKEN, false)
        .with_flag(CKA_SENSITIVE, macs)
        .with_flag(CKA_EXTRACTABLE, !macs);
    let template = if macs {
        template.with_flag(CKA_SIGN, true)
    } else {
        template
    };
    let key = site.make_session(&Operation::Unwrap {
        unwrapping: private.into(),
        mechanism: oaep(hash),
        wrapped: public.encrypt(&oaep(hash), &challenge)?.into(),
        template,
    })?;
    if !macs {
        let object = key.reference();
        let read = site.make(&Operation::Read { object })?;
        return Ok(read.object.attributes.get(CKA_VALUE) == Some(&challenge));
    }
    let hmac = Mechanism::plain(CKM_SHA256_HMAC);
    let tag = site.with_key(Verb::Sign, key.reference(), hmac, PROOF.to_vec())?;
    let mut expected = Hmac::<Sha256>::new_from_slice(&challenge).expect("any length will do");
    expected.update(PROOF);
    Ok(expected.verify_slice(&tag).is_ok())
}

fn label(serial: &str) -> String {
    format!("{TRANSPORT_LABEL}{serial}")
}

/// The key of the MAC, made the first time.
fn mac_key(path: &Path) -> Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    match std::fs::read(path).map(Zeroizing::new) {
        Ok(bytes) if bytes.len() == key.len() => key.copy_from_slice(&bytes),
        Ok(_) => return Err(forged(path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            *key = super::random()?;
            files::replace(path, key.as_slice(), 0o600)?;
        }
        Err(e) => return Err(files::failed("read", path, &e)),
    }
    Ok(key)
}

fn mac(key: &[u8; 32], pins: &BTreeMap<String, Pin>) -> Hmac<Sha256> {
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
    }
    mac
}

/// The pins of a file whose MAC is right.
fn authentic(key: &[u8; 32], json: &[u8]) -> Option<BTreeMap<String, Pin>> {
    let pinned: Pinned = serde_json::from_slice(json).ok()?;
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
