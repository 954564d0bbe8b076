//! Whose JWTs let clients of the broker in.

use std::path::PathBuf;

use crate::config::reader::{Fields, text};

/// An issuer of JSON Web Tokens (RFC 7519).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jwt {
    /// Its public keys: a JWK set (RFC 7517).
    pub keys: PathBuf,
    /// What `iss` has to be.
    pub issuer: String,
    /// What `aud` has to be, or to have among others.
    pub audience: String,
    /// The claim whose value is the client's name.
    pub name: String,
}

pub fn jwt(fields: &mut Fields<'_, '_, '_>) -> Option<Jwt> {
    const NEEDED: [&str; 3] = ["jwt_keys", "jwt_issuer", "jwt_audience"];
    let names = [&NEEDED[..], &["jwt_name"]].concat();
    if !names.iter().any(|name| fields.has(name)) {
        return None;
    }
    for name in NEEDED {
        if !fields.has(name) {
            fields.missing(name);
        }
    }
    let word = |fields: &mut Fields<'_, '_, '_>, name| {
        fields.read(name, |value| match text(value)? {
            "" => Err("it is empty".into()),
            text => Ok(text.to_owned()),
        })
    };
    let keys = fields.path("jwt_keys");
    let (issuer, audience) = (word(fields, "jwt_issuer"), word(fields, "jwt_audience"));
    Some(Jwt {
        name: word(fields, "jwt_name").unwrap_or_else(|| "sub".into()),
        keys: keys?,
        issuer: issuer?,
        audience: audience?,
    })
}
