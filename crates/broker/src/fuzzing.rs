//! Entry for fuzz targets: what clients send, and issuers' keys.

use std::path::PathBuf;

use hsmux_config::{JwkSet, Jwt};

use crate::auth::jwt::Issuer;
use crate::key::KeyName;
use crate::transit::batch::{Batch, MOST};
use crate::transit::{crypt, sealed_text::SealedText, sign};

/// An issuer of JWTs.
pub struct Jwts(Issuer);

impl Jwts {
    /// With these keys, as `https://issuer.example` for `hsmux`; `None` where none of them can be used.
    pub fn new(keys: &[u8]) -> Option<Self> {
        let settings = Jwt {
            keys: JwkSet::File(PathBuf::new()),
            issuer: "https://issuer.example".into(),
            audience: "hsmux".into(),
            name: "sub".into(),
        };
        Issuer::new(settings, keys).ok().map(Self)
    }

    /// The client, where the token is good.
    pub fn owner(&self, token: &str) -> Option<String> {
        let is_jwt = Issuer::is_jwt(token);
        let owner = self.0.verify(token).owner();
        assert!(is_jwt || owner.is_none());
        owner.map(|owner| owner.name)
    }
}

/// Version and bytes of what a key has made.
pub fn sealed(text: &str) -> Option<(u32, Vec<u8>)> {
    let sealed = SealedText::read(text).ok()?;
    Some((sealed.version, sealed.bytes))
}

/// The reverse.
pub fn write_sealed(version: u32, bytes: &[u8]) -> String {
    SealedText::write(version, bytes)
}

/// A key's name, managed or of others; what is written of it on the trail is short.
pub fn key_name(text: &str) {
    let _ = text.parse::<KeyName>();
    let spelling = crate::engine::spelling(text);
    assert!(spelling.len() <= 200, "{spelling}");
    if crate::engine::is_external(text) {
        let _ = crate::engine::key_lookup(text);
    }
}

/// An ECDSA signature in ASN.1 is read to r and s, and written as it was.
pub fn signature(der: &[u8]) {
    crate::transit::marshal::check(der);
}

/// The most items of a batch.
pub const MOST_ITEMS: usize = MOST;

/// How many items a body has, read as requests of two kinds are.
pub fn batch(body: &[u8]) -> Option<usize> {
    let ciphers = serde_json::from_slice::<Batch<crypt::CryptItem>>(body);
    let signs = serde_json::from_slice::<Batch<sign::SignItem>>(body);
    let items = [ciphers.ok()?.items(), signs.ok()?.items()];
    assert_eq!(items[0], items[1]);
    Some(items[0])
}
