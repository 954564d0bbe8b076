//! The key and mechanism of a benchmark.

use std::fmt;

use bytes::Bytes;
use hsmux_software::PublicKey;
use hsmux_token::{
    Attributes, Class, Error, Hash, KeyKind, Kind, Mechanism, Object, ObjectId, Params, Pss,
    Result, Token, Uri, ck, entry, entry_by_name,
};
use serde::{Deserialize, Serialize};

/// A key that can sign.
#[derive(Clone, Debug)]
pub struct BenchKey {
    /// Its object.
    pub id: ObjectId,
    /// Its description.
    pub about: KeyDescription,
    /// The public key for checks; a secret key has none.
    pub public: Option<PublicKey>,
    /// The default mechanism.
    pub mechanism: Mechanism,
}

/// The description of a key in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDescription {
    /// CKA_LABEL.
    pub label: String,
    /// CKA_ID, in hex.
    pub id: String,
    /// `RSA`, `EC`, ...
    pub kind: String,
    /// Size of the modulus or field; 0 if unknown.
    pub bits: usize,
}

impl fmt::Display for KeyDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            label, kind, bits, ..
        } = self;
        match bits {
            0 => write!(f, "{kind} key {label:?}"),
            _ => write!(f, "{kind} key of {bits} bits, {label:?}"),
        }
    }
}

/// The OID of P-256 in DER; other curves with 256 bits exist.
const PRIME256V1: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// The OID of brainpoolP256r1 in DER (RFC 5639, section 4.1).
const BRAINPOOL_P256R1: &[u8] = &[
    0x06, 0x09, 0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, 0x01, 0x01, 0x07,
];

impl BenchKey {
    /// The only signing key that `wanted` matches; without it the only P-256 key.
    pub fn find(token: &dyn Token, wanted: Option<&Uri>) -> Result<Self> {
        let objects = token.objects()?;
        let keys: Vec<Self> = objects
            .objects
            .iter()
            .filter(|object| wanted.is_none_or(|uri| uri.matches_object(object)))
            .filter_map(Self::of)
            .filter(|key| wanted.is_some() || key.is_on(PRIME256V1))
            .collect();
        match <[Self; 1]>::try_from(keys) {
            Ok([key]) => Ok(key),
            Err(keys) => Err(ambiguous(wanted, &keys, token)),
        }
    }

    fn of(object: &Object) -> Option<Self> {
        let attributes = &object.attributes;
        let is_key = [Class::PRIVATE_KEY, Class::SECRET_KEY].contains(&object.id.class);
        if !is_key || attributes.flag(ck::CKA_SIGN) == Some(false) {
            return None;
        }
        let kind = KeyKind::of(attributes.number(ck::CKA_KEY_TYPE)?);
        let public = PublicKey::from_attributes(attributes).ok();
        Some(Self {
            id: object.id,
            about: about(attributes, kind, public.as_ref()),
            public,
            mechanism: Mechanism::plain(usual(kind)?),
        })
    }

    /// Whether it is on P-256, for which published signing rates exist.
    pub fn is_p256(&self) -> bool {
        self.is_on(PRIME256V1)
    }

    /// The name of this kind of key in the published figures (`rsa-2048`, `ec-brainpoolP256r1`); `None` if they lack
    /// it.
    pub fn published_kind(&self) -> Option<&'static str> {
        match self.public.as_ref()?.kind() {
            KeyKind::Rsa if self.about.bits == 2048 => Some("rsa-2048"),
            KeyKind::Ec if self.is_on(BRAINPOOL_P256R1) => Some("ec-brainpoolP256r1"),
            _ => None,
        }
    }

    fn is_on(&self, curve: &[u8]) -> bool {
        self.public
            .as_ref()
            .is_some_and(|key| key.to_attributes().get(ck::CKA_EC_PARAMS) == Some(curve))
    }
}

fn about(attributes: &Attributes, kind: KeyKind, public: Option<&PublicKey>) -> KeyDescription {
    let id = attributes.get(ck::CKA_ID).unwrap_or_default();
    let hex = id
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let secret = attributes.number(ck::CKA_VALUE_LEN).unwrap_or(0) as usize * 8;
    KeyDescription {
        label: attributes.text(ck::CKA_LABEL).unwrap_or_default(),
        id: hex,
        kind: format!("{kind:?}").to_uppercase(),
        bits: public.map_or(secret, PublicKey::bits),
    }
}

/// The usual mechanism of the kind.
const fn usual(kind: KeyKind) -> Option<u64> {
    Some(match kind {
        KeyKind::Rsa => ck::CKM_SHA256_RSA_PKCS,
        KeyKind::Ec => ck::CKM_ECDSA,
        KeyKind::Edwards => ck::CKM_EDDSA,
        KeyKind::Aes => ck::CKM_AES_CMAC,
        KeyKind::Generic => ck::CKM_SHA256_HMAC,
        _ => return None,
    })
}

/// A sign mechanism by name (`ecdsa`, `sha256-rsa-pkcs-pss`), with its usual parameter: for PSS the mechanism's hash
/// (SHA-256 if it has none) and a salt of that length.
pub fn mechanism(name: &str) -> Result<Mechanism> {
    let entry = entry_by_name(name).filter(|entry| entry.uses.contains(hsmux_token::Uses::SIGN));
    let entry = entry.ok_or_else(|| {
        let message = format!(
            "{name}: not a sign mechanism of PKCS#11; write it as ecdsa or sha256-rsa-pkcs"
        );
        Error::request(Kind::Invalid, message)
    })?;
    let raw = entry.prehash.map_or(entry.kind, |prehash| prehash.raw);
    let hash = entry.prehash.map_or(Hash::Sha256, |prehash| prehash.hash);
    let params = match raw {
        ck::CKM_RSA_PKCS_PSS => Params::Pss(Pss {
            hash: hash.mechanism(),
            mgf: hash.mgf(),
            salt: hash.len() as u64,
        }),
        _ => Params::None,
    };
    Ok(Mechanism {
        kind: entry.kind,
        params,
    })
}

/// Checks an answer by the public key. A MAC must always be the same.
pub fn check(
    key: &BenchKey,
    mechanism: &Mechanism,
    data: &[u8],
    first: &Bytes,
    answer: &[u8],
) -> Result<()> {
    match &key.public {
        Some(public) => public.verify(mechanism, data, answer),
        None if first == answer => Ok(()),
        None => Err(Error::vendor("C_Sign", ck::CKR_SIGNATURE_INVALID)
            .at("a MAC that differs from the first one")),
    }
}

/// Checks that the mechanism is for keys of this kind.
pub fn fits(key: &BenchKey, mechanism: &Mechanism) -> Result<()> {
    let (Some(wanted), Some(usual)) = (entry(mechanism.kind), entry(key.mechanism.kind)) else {
        return Ok(());
    };
    if wanted.key == usual.key {
        return Ok(());
    }
    let (name, kind) = (wanted.name, &key.about.kind);
    Err(Error::request(
        Kind::Invalid,
        format!("{name} is not for {kind} keys; {} is", usual.name),
    ))
}

fn ambiguous(wanted: Option<&Uri>, keys: &[BenchKey], token: &dyn Token) -> Error {
    let asked = wanted.map_or_else(|| "a P-256 key".to_owned(), ToString::to_string);
    let label = &token.info().label;
    if keys.is_empty() {
        let message =
            format!("token {label:?} has no key for signing that is {asked}; see `hsmux key list`");
        return Error::request(Kind::UnknownObject, message);
    }
    let names: Vec<String> = keys
        .iter()
        .map(|key| format!("{:?} (id {})", key.about.label, key.about.id))
        .collect();
    let names = names.join(", ");
    Error::request(
        Kind::Invalid,
        format!(
            "token {label:?} has {} keys that are {asked}: {names}; name one by --label, --id or --type, as hsmux key list shows them",
            keys.len()
        ),
    )
}
