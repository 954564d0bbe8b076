//! Entry for fuzz targets: input of clients, and keys of issuers.

use std::path::PathBuf;

use hsmux_config::{JwkSet, Jwt};

use crate::auth::jwt::Issuer;
use crate::key::KeyName;
use crate::transit::batch::{Batch, MOST};
use crate::transit::{crypt, sealed_text::SealedText, sign};

/// An issuer of JWTs.
pub struct Jwts(Issuer);

impl Jwts {
    /// An issuer with these keys, as `https://issuer.example` for `hsmux`; `None` if none of them is usable.
    pub fn new(keys: &[u8]) -> Option<Self> {
        let settings = Jwt {
            keys: JwkSet::File(PathBuf::new()),
            issuer: "https://issuer.example".into(),
            audience: "hsmux".into(),
            name: "sub".into(),
        };
        Issuer::new(settings, keys).ok().map(Self)
    }

    /// The client, if the token is valid.
    pub fn owner(&self, token: &str) -> Option<String> {
        let is_jwt = Issuer::is_jwt(token);
        let owner = self.0.verify(token).owner();
        assert!(is_jwt || owner.is_none());
        owner.map(|owner| owner.name)
    }
}

/// Version and bytes of a key's output.
pub fn sealed(text: &str) -> Option<(u32, Vec<u8>)> {
    let sealed = SealedText::read(text).ok()?;
    Some((sealed.version, sealed.bytes))
}

/// The reverse.
pub fn write_sealed(version: u32, bytes: &[u8]) -> String {
    SealedText::write(version, bytes)
}

/// The name of a key, managed or external; its form on the trail is short.
pub fn key_name(text: &str) {
    let _ = text.parse::<KeyName>();
    let spelling = crate::engine::spelling(text);
    assert!(spelling.len() <= 200, "{spelling}");
    if crate::engine::is_external(text) {
        let _ = crate::engine::key_lookup(text);
    }
}

/// Reads an ECDSA signature in ASN.1 to r and s, and writes it the same.
pub fn signature(der: &[u8]) {
    crate::transit::marshal::check(der);
}

/// The most items of a batch.
pub const MOST_ITEMS: usize = MOST;

/// The number of items in a body, as requests of two kinds read it.
pub fn batch(body: &[u8]) -> Option<usize> {
    let ciphers = serde_json::from_slice::<Batch<crypt::CryptItem>>(body);
    let signs = serde_json::from_slice::<Batch<sign::SignItem>>(body);
    let items = [ciphers.ok()?.items(), signs.ok()?.items()];
    assert_eq!(items[0], items[1]);
    Some(items[0])
}
