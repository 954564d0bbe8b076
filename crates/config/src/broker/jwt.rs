//! The issuer of JWTs that the broker accepts.

use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::duration;
use crate::reader::{ExternalReference, Fields, suggestion, text};

/// An issuer of JSON Web Tokens (RFC 7519).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jwt {
    /// Its public keys.
    pub keys: JwkSet,
    /// The required value of `iss`.
    pub issuer: String,
    /// The required value of `aud`, alone or among others.
    pub audience: String,
    /// The claim that holds the client's name.
    pub name: String,
}

/// The source of a JWK set (RFC 7517).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JwkSet {
    /// In a file.
    File(PathBuf),
    /// On the issuer's server.
    Url(JwkUrl),
}

/// A JWK set that is fetched by URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JwkUrl {
    /// `https:`, or `http:` on this machine.
    pub url: String,
    /// PEM: the roots that the server's certificate must lead to; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// The interval of fetches.
    pub refresh: Duration,
    /// How long the last set is used while fetches fail.
    pub max_age: Duration,
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
    let keys = fields.read("jwt_keys", key_set);
    let (issuer, audience) = (word(fields, "jwt_issuer"), word(fields, "jwt_audience"));
    // Paths are resolved relative to the configuration file.
    let keys = keys.map(|keys| match keys {
        JwkSet::File(path) => JwkSet::File(fields.source.path(&path.to_string_lossy())),
        JwkSet::Url(from) => JwkSet::Url(JwkUrl {
            ca: from
                .ca
                .map(|path| fields.source.path(&path.to_string_lossy())),
            ..from
        }),
    });
    let file = match &keys {
        Some(JwkSet::File(file)) => Some(ExternalReference::Trust("broker", file.clone())),
        // Not an error: the broker starts without the set, and fetches it later.
        Some(JwkSet::Url(from)) => from.ca.clone().map(ExternalReference::Later),
        None => None,
    };
    if let Some(file) = file {
        fields.names("jwt_keys", file);
    }
    Some(Jwt {
        name: word(fields, "jwt_name").unwrap_or_else(|| "sub".into()),
        keys: keys?,
        issuer: issuer?,
        audience: audience?,
    })
}

fn key_set(value: &DeValue<'_>) -> Result<JwkSet, String> {
    if let Some(table) = value.as_table() {
        let mut from = JwkUrl {
            url: String::new(),
            ca: None,
            refresh: Duration::from_secs(15 * 60),
            max_age: Duration::from_secs(24 * 3600),
        };
        for (name, value) in table {
            let name: &str = name.get_ref().as_ref();
            let text = text(value.get_ref())?;
            match name {
                "url" => url(text)?.clone_into(&mut from.url),
                "ca" => from.ca = Some(PathBuf::from(text)),
                "refresh" => from.refresh = duration::read(text)?,
                "max_age" => from.max_age = duration::read(text)?,
                _ => {
                    let hint = suggestion(name, ["url", "ca", "refresh", "max_age"].into_iter());
                    return Err(format!("{name:?} is unknown{hint}"));
                }
            }
        }
        if from.url.is_empty() {
            return Err("url is missing: { url = \"https://...\" }".into());
        }
        if from.ca.is_some() && !from.url.starts_with("https:") {
            return Err("ca is for a url that begins with https:".into());
        }
        if from.max_age < from.refresh {
            return Err("max_age is shorter than refresh".into());
        }
        return Ok(JwkSet::Url(from));
    }
    match value.as_str() {
        Some(text) if text.contains("://") => Err(format!(
            "what is fetched stands in braces: {{ url = {text:?} }}"
        )),
        Some("") => Err("the path is empty".into()),
        Some(text) => Ok(JwkSet::File(PathBuf::from(text))),
        None => Err("it is neither a file nor { url = \"https://...\" }".into()),
    }
}

/// Requires TLS: an attacker who replaces the keys in transit could authenticate as anybody.
fn url(text: &str) -> Result<&str, String> {
    let wrong = || format!("{text:?} is no URL");
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            port.parse::<u16>().map_err(|_| wrong())?;
            name
        }
        _ => host,
    };
    let strange = |c: char| !c.is_ascii_graphic() || "#@\"<>\\^`{|}".contains(c);
    if name.is_empty() || text.contains(strange) {
        return Err(wrong());
    }
    let here = ["localhost", "127.0.0.1", "[::1]"].contains(&name);
    match scheme {
        "https" => Ok(text),
        "http" if here => Ok(text),
        "http" => Err("http: is for this machine alone: use https:".into()),
        _ => Err(format!("{text:?} does not begin with https:")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_from_where_nobody_can_change_them() {
        for (text, good) in [
            ("https://login.example/jwks.json", true),
            ("https://[2001:db8::1]:8443/keys?tenant=a", true),
            ("http://127.0.0.1:8080/jwks.json", true),
            ("http://[::1]/", true),
            ("http://localhost", true),
            ("http://login.example/jwks.json", false),
            ("http://127.0.0.1.example/", false),
            ("http://localhost@login.example/", false),
            ("file:///etc/jwks.json", false),
            ("https://", false),
            ("https://:443/", false),
            ("https://login.example:port/", false),
            ("https://login.example/a b", false),
            ("login.example", false),
        ] {
            assert_eq!(url(text).is_ok(), good, "{text}");
        }
    }
}
