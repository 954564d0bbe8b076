//! The dialect's view of a key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hsmux_software::PublicKey;
use hsmux_state::Timestamp;
use serde_json::{Map, Value};
use x509_cert::der::pem::{LineEnding, encode_string};

use super::Data;
use crate::engine::{Engine, ExternalKey};
use crate::key::{KeySettings, KeyVersion, ManagedKey, Shape};

/// A managed key. Versions that another program has removed from the tokens are left out, and so are public halves
/// that no token has now.
pub fn managed(engine: &Engine, key: &ManagedKey) -> Data {
    let shape = key.kind.shape();
    let versions = key.versions.values().filter(|version| engine.has(version));
    let versions = versions.map(|version| {
        let number = version.number.to_string();
        (number, of_managed(engine, shape, version))
    });
    let latest = key.latest();
    data(
        key.name.as_str(),
        shape,
        versions.collect(),
        latest,
        key.settings,
    )
}

/// An external key under the name in the request. Its creation time is unknown.
pub fn external(engine: &Engine, name: &str, key: &ExternalKey) -> Data {
    let version = if key.shape.signs() {
        let public = engine.public_key(key.object).ok();
        Map::from(asymmetric(key.shape, public.as_ref())).into()
    } else {
        Value::from(0)
    };
    let versions = [("1".to_owned(), version)].into_iter().collect();
    let mut data = data(name, key.shape, versions, 1, KeySettings::default());
    data.add("object", key.object.to_string());
    data
}

fn data(
    name: &str,
    shape: Shape,
    versions: Map<String, Value>,
    latest: u32,
    settings: KeySettings,
) -> Data {
    Data::from([
        ("name", name.into()),
        ("type", shape.word().into()),
        ("keys", versions.into()),
        ("latest_version", latest.into()),
        ("min_available_version", settings.min_available.into()),
        ("min_decryption_version", settings.min_decryption.into()),
        ("min_encryption_version", settings.min_encryption.into()),
        ("deletion_allowed", settings.deletion_allowed.into()),
        ("supports_encryption", shape.encrypts().into()),
        ("supports_decryption", shape.encrypts().into()),
        ("supports_signing", shape.signs().into()),
        ("supports_derivation", false.into()),
        ("exportable", false.into()),
        ("allow_plaintext_backup", false.into()),
        ("derived", false.into()),
        ("imported_key", false.into()),
        ("auto_rotate_period", 0.into()),
    ])
}

fn of_managed(engine: &Engine, shape: Shape, version: &KeyVersion) -> Value {
    if !shape.signs() {
        return version.created.into();
    }
    let public = engine.public_half(version).ok();
    let mut shown = asymmetric(shape, public.as_ref());
    shown.add("creation_time", time(version.created));
    if let Some(chain) = &version.certificates {
        shown.add("certificate_chain", chain.as_str());
    }
    Map::from(shown).into()
}

fn asymmetric(shape: Shape, public: Option<&PublicKey>) -> Data {
    let name = shape
        .curve_word()
        .map_or_else(|| shape.word(), str::to_owned);
    let mut shown = Data::from([("name", name.into())]);
    if let Some(public) = public {
        let spki = public.spki();
        let text = match shape {
            // Only the 32 bytes, as in the dialect.
            Shape::Ed25519 => STANDARD.encode(&spki[spki.len().saturating_sub(32)..]),
            _ => encode_string("PUBLIC KEY", LineEnding::LF, spki).unwrap_or_default(),
        };
        shown.add("public_key", text);
    }
    shown
}

/// The time by RFC 3339, section 5.6.
pub fn time(seconds: u64) -> String {
    Timestamp::from(seconds).to_string()
}
