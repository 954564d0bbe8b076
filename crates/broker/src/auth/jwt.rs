//! JSON Web Tokens (RFC 7519): an issuer says who the client is, and signs it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use hsmux_pool::config::Jwt;
use hsmux_token::{Error, Kind, Result};
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::jws;
use crate::stamp::Stamp;

/// An issuer whose tokens let clients in.
pub struct Issuer {
    settings: Jwt,
    keys: Vec<(Jwk, DecodingKey)>,
    /// Tokens that were found good: a signature is not looked at for each request.
    known: Mutex<HashMap<[u8; 32], Known>>,
}

/// The issuer of now, if there is one.
#[derive(Default)]
pub struct Trust {
    issuer: ArcSwapOption<Issuer>,
    seen: Mutex<(Option<Jwt>, Stamp)>,
}

struct Known {
    name: String,
    until: SystemTime,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// So many good tokens are remembered.
const MANY: usize = 10_000;

/// By how much its clock may differ from ours.
const LEEWAY: Duration = Duration::from_secs(60);

impl Trust {
    /// Whom to ask about a JWT.
    pub fn issuer(&self) -> Option<Arc<Issuer>> {
        self.issuer.load_full()
    }

    /// Reads the issuer's keys where it is another one or they have changed; answers whether that was so.
    /// What cannot be read is not taken over.
    pub fn refresh(&self, settings: Option<&Jwt>) -> Result<bool> {
        let mut seen = self.seen.lock();
        let now = Stamp::of(settings.map(|settings| &*settings.keys));
        if seen.0.as_ref() == settings && seen.1 == now {
            return Ok(false);
        }
        *seen = (settings.cloned(), now);
        let issuer = settings.cloned().map(Issuer::read).transpose()?;
        self.issuer.store(issuer.map(Arc::new));
        Ok(true)
    }
}

impl Issuer {
    /// Reads its public keys, a JWK set (RFC 7517). Those that are no use here are passed over.
    pub fn read(settings: Jwt) -> Result<Self> {
        jws::install();
        let file = settings.keys.display();
        let failed = |e: &dyn std::fmt::Display| {
            Error::pool(Kind::Environment, format!("[broker] jwt_keys {file}: {e}"))
        };
        let text = std::fs::read(&settings.keys).map_err(|e| failed(&e))?;
        let set: KeySet = serde_json::from_slice(&text).map_err(|e| failed(&e))?;
        let keys: Vec<_> = set.keys.into_iter().filter_map(usable).collect();
        if keys.is_empty() {
            return Err(failed(&"no public key in it that signs tokens"));
        }
        Ok(Self {
            settings,
            keys,
            known: Mutex::default(),
        })
    }

    /// Whether a text is a JWT at all: three parts, and ours have two.
    pub fn is_jwt(token: &str) -> bool {
        token.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// The client, where the token was found good before.
    pub fn known(&self, token: &str) -> Option<String> {
        let known = self.known.lock();
        let found = known.get(&digest(token))?;
        (SystemTime::now() < found.until).then(|| found.name.clone())
    }

    /// The client, where the token is good.
    pub fn verify(&self, token: &str) -> Option<String> {
        let header = decode_header(token).ok()?;
        let validation = self.validation(header.alg)?;
        let fitting = self.keys.iter().filter(|(jwk, _)| fits(jwk, &header));
        let mut good = fitting
            .filter_map(|(_, key)| decode::<Map<String, Value>>(token, key, &validation).ok());
        let claims = good.next()?.claims;
        let name = claims.get(&self.settings.name)?.as_str()?;
        let expires = claims.get("exp")?.as_f64()?;
        let expires = Duration::try_from_secs_f64(expires).ok()?;
        let name = (!name.is_empty()).then(|| format!("jwt:{name}"))?;
        let until = SystemTime::UNIX_EPOCH.checked_add(expires + LEEWAY)?;
        self.remember(
            token,
            Known {
                name: name.clone(),
                until,
            },
        );
        Some(name)
    }

    fn validation(&self, algorithm: Algorithm) -> Option<Validation> {
        if !jws::ALGORITHMS.contains(&algorithm) {
            return None;
        }
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        Some(validation)
    }

    fn remember(&self, token: &str, one: Known) {
        let mut known = self.known.lock();
        if known.len() >= MANY {
            let now = SystemTime::now();
            known.retain(|_, one| now < one.until);
        }
        if known.len() < MANY {
            known.insert(digest(token), one);
        }
    }
}

fn usable(key: Value) -> Option<(Jwk, DecodingKey)> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    let enciphers = matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption));
    if enciphers || !jws::is_public(&jwk) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some((jwk, key))
}

/// A key serves a token that names it, or names none; and its own algorithm, where it has one.
fn fits(jwk: &Jwk, header: &Header) -> bool {
    let named = header.kid.is_none() || header.kid == jwk.common.key_id;
    let own = jwk.common.key_algorithm.map(|own| own.to_string());
    named && own.is_none_or(|own| own == format!("{:?}", header.alg))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
