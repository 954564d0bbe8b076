//! JSON Web Tokens and the issuer's keys.

use std::sync::LazyLock;

use hsmux_broker::fuzzing::Jwts;

/// Public keys whose private halves nobody has kept.
const KEYS: &[u8] = include_bytes!("../data/jwks.json");

/// Tokens that they have signed, one a line.
const SIGNED: &str = include_str!("../data/tokens");

/// Sets of keys, each with one of the tokens: a signature takes longer than all the rest.
pub fn jwk(input: &[u8]) {
    if let Some(issuer) = Jwts::new(input) {
        let count = SIGNED.lines().count();
        if let Some(token) = SIGNED.lines().nth(input.len() % count) {
            issuer.owner(token);
        }
    }
}

/// A token is good only if what it says was signed.
pub fn jws(input: &[u8]) {
    static ISSUER: LazyLock<Jwts> = LazyLock::new(|| Jwts::new(KEYS).expect("keys"));
    let Ok(token) = std::str::from_utf8(input) else {
        return;
    };
    if ISSUER.owner(token).is_some() {
        let said = said(token);
        assert!(
            SIGNED.lines().any(|signed| self::said(signed) == said),
            "{token}"
        );
    }
}

/// A token without its signature.
fn said(token: &str) -> Option<&str> {
    token.rsplit_once('.').map(|(said, _)| said)
}
