//! JSON Web Tokens (RFC 7519): an issuer names the client, and signs that.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hsmux_config::{JwkSet, Jwt};
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{Lifetime, TokenOwner, jws};

/// An issuer whose tokens are accepted.
pub struct Issuer {
    settings: Jwt,
    keys: Vec<(Jwk, DecodingKey)>,
    /// The hash of the set's text.
    text: [u8; 32],
    /// Verified tokens, to save a verification for each request.
    known: Mutex<VerifiedTokens>,
}

/// The result of verifying a token.
pub enum JwtVerdict {
    Good(TokenOwner),
    Bad,
    /// It names a key that is not in the set.
    UnknownKey,
}

/// Verified tokens by their hashes. When the newer half is full it becomes the older half, and the older half is
/// dropped. This needs no search, and a new token always finds room.
#[derive(Default)]
struct VerifiedTokens {
    newer: HashMap<[u8; 32], VerifiedToken>,
    older: HashMap<[u8; 32], VerifiedToken>,
}

struct VerifiedToken {
    owner: TokenOwner,
    until: SystemTime,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// So many good tokens are remembered.
const MANY: usize = 10_000;

/// The accepted difference between the issuer's clock and ours.
const LEEWAY: Duration = Duration::from_secs(60);

impl JwtVerdict {
    /// The owner, if the token is good.
    pub fn owner(self) -> Option<TokenOwner> {
        match self {
            Self::Good(owner) => Some(owner),
            Self::Bad | Self::UnknownKey => None,
        }
    }
}

impl Issuer {
    /// An issuer with the public keys of a JWK set (RFC 7517). Unusable keys are skipped.
    pub fn new(settings: Jwt, text: &[u8]) -> Result<Self, String> {
        jws::install();
        let set: KeySet = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let keys: Vec<_> = set.keys.into_iter().filter_map(usable).collect();
        if keys.is_empty() {
            return Err("no public key in it that signs tokens".into());
        }
        Ok(Self {
            settings,
            keys,
            text: digest(text),
            known: Mutex::default(),
        })
    }

    /// True if these settings and this text would make the same issuer.
    pub fn is_of(&self, settings: &Jwt, text: &[u8]) -> bool {
        self.settings == *settings && self.text == digest(text)
    }

    /// True if these settings name the same issuer at the same server with the same roots. The refresh interval does
    /// not count.
    pub fn is_from(&self, settings: &Jwt) -> bool {
        let place = |of: &Jwt| match &of.keys {
            JwkSet::Url(from) => Some((from.url.clone(), from.ca.clone())),
            JwkSet::File(_) => None,
        };
        let (here, there) = (place(&self.settings), place(settings));
        let same = Jwt {
            keys: settings.keys.clone(),
            ..self.settings.clone()
        };
        here.is_some() && here == there && same == *settings
    }

    /// True if the text is a JWT: it has three parts. The broker's own tokens have two.
    pub fn is_jwt(token: &str) -> bool {
        token.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// The client, if the token was verified before.
    pub fn known(&self, token: &str) -> Option<TokenOwner> {
        let known = self.known.lock();
        let found = known.get(&digest(token.as_bytes()))?;
        (SystemTime::now() < found.until).then(|| found.owner.clone())
    }

    /// Verifies the token.
    pub fn verify(&self, token: &str) -> JwtVerdict {
        let Some((header, validation)) = self.header(token) else {
            return JwtVerdict::Bad;
        };
        let named = |(jwk, _): &&(Jwk, DecodingKey)| is_named(jwk, &header);
        if !self.keys.iter().any(|key| named(&key)) {
            return JwtVerdict::UnknownKey;
        }
        let fitting = self.keys.iter().filter(named);
        let mut fitting = fitting.filter(|(jwk, _)| has_algorithm(jwk, &header));
        let claims = fitting.find_map(|(_, key)| {
            let good = decode::<Map<String, Value>>(token, key, &validation).ok()?;
            Some(good.claims)
        });
        let owner = claims.and_then(|claims| self.admit(token, &claims));
        owner.map_or(JwtVerdict::Bad, JwtVerdict::Good)
    }

    /// The header and how to validate by it; `None` for an unknown algorithm. A header with `crit` is refused: it
    /// demands extensions that are not implemented (RFC 7515, section 4.1.11).
    fn header(&self, token: &str) -> Option<(Header, Validation)> {
        let (first, _) = token.split_once('.')?;
        let text = URL_SAFE_NO_PAD.decode(first).ok()?;
        let members: Map<String, Value> = serde_json::from_slice(&text).ok()?;
        let header = decode_header(token).ok()?;
        let validation = self.validation(header.alg)?;
        (!members.contains_key("crit")).then_some((header, validation))
    }

    /// The owner that the claims of a verified token name.
    fn admit(&self, token: &str, claims: &Map<String, Value>) -> Option<TokenOwner> {
        let name = claims.get(&self.settings.name)?.as_str()?;
        let expires = claims.get("exp")?.as_f64()?;
        let expires = Duration::try_from_secs_f64(expires).ok()?;
        let name = (!name.is_empty()).then(|| format!("jwt:{name}"))?;
        let until = SystemTime::UNIX_EPOCH.checked_add(expires + LEEWAY)?;
        let issued = claims.get("iat").and_then(Value::as_f64);
        let issued = issued.and_then(|at| Duration::try_from_secs_f64(at).ok());
        let owner = TokenOwner {
            name,
            lifetime: Lifetime {
                created: issued.map(|at| at.as_secs()),
                expires: Some(expires.as_secs()),
            },
        };
        let known = VerifiedToken {
            owner: owner.clone(),
            until,
        };
        self.remember(token, known);
        Some(owner)
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

    fn remember(&self, token: &str, one: VerifiedToken) {
        let token = digest(token.as_bytes());
        self.known.lock().insert(token, one);
    }
}

impl VerifiedTokens {
    fn get(&self, token: &[u8; 32]) -> Option<&VerifiedToken> {
        self.newer.get(token).or_else(|| self.older.get(token))
    }

    fn insert(&mut self, token: [u8; 32], one: VerifiedToken) {
        if self.newer.len() >= MANY / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(token, one);
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

/// True if a token names this key, or no key.
fn is_named(jwk: &Jwk, header: &Header) -> bool {
    header.kid.is_none() || header.kid == jwk.common.key_id
}

/// True if the key has no algorithm, or this one.
fn has_algorithm(jwk: &Jwk, header: &Header) -> bool {
    let own = jwk.common.key_algorithm.map(|own| own.to_string());
    own.is_none_or(|own| own == format!("{:?}", header.alg))
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_there_were_a_new_one_is_remembered() {
        let token = |number: usize| digest(&number.to_be_bytes());
        let mut memory = VerifiedTokens::default();
        for number in 0..3 * MANY {
            let one = VerifiedToken {
                owner: TokenOwner {
                    name: "jwt:app".into(),
                    lifetime: Lifetime::default(),
                },
                until: SystemTime::now() + LEEWAY,
            };
            memory.insert(token(number), one);
            let before = number.saturating_sub(MANY / 2);
            for newer in [number, before] {
                assert!(memory.get(&token(newer)).is_some(), "{newer} of {number}");
            }
            assert!(memory.newer.len() + memory.older.len() <= MANY);
        }
        assert!(memory.get(&token(0)).is_none());
    }
}
