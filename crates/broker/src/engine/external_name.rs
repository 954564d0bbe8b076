//! Names of other programs' keys in requests: `pkcs11:` URI, `label:`, or `id:` in hexadecimal digits.

use hsmux_token::{Class, Uri, UriError};
use sha2::{Digest, Sha256};

use crate::key::KeyName;
use crate::refusal::Refusal;

/// The attribute that finds a key.
pub enum KeyLookup {
    /// Its CKA_LABEL.
    Label(Vec<u8>),
    /// Its CKA_ID.
    Id(Vec<u8>),
}

/// The longest name on the trail, in bytes.
const LONGEST: usize = 200;

/// True for the name of a key that another program has made: managed names have no `:`.
pub fn is_external(name: &str) -> bool {
    name.contains(':')
}

/// A client's name of a key in the form for the trail. A URI keeps only the attributes that name the key, since people
/// write PINs into URIs. An invalid or long name becomes a hash.
pub fn spelling(name: &str) -> String {
    let managed = name.is_empty() || name.parse::<KeyName>().is_ok();
    let kept = if managed {
        Some(name.to_owned())
    } else if name.starts_with("label:") || name.starts_with("id:") {
        name.split('?').next().map(str::to_owned)
    } else {
        name.parse::<Uri>().ok().map(|uri| {
            let (object, id, class) = (uri.object, uri.id, uri.class);
            let names = Uri {
                object,
                id,
                class,
                ..Uri::default()
            };
            names.to_string()
        })
    };
    kept.filter(|kept| kept.len() <= LONGEST)
        .unwrap_or_else(|| {
            let hash = Sha256::digest(name.as_bytes());
            format!("name:{}", hex::encode(&hash[..8]))
        })
}

/// The attribute to search by, and what else the key has to match.
pub fn key_lookup(name: &str) -> Result<(KeyLookup, Uri), Refusal> {
    if let Some(label) = name.strip_prefix("label:") {
        return Ok((KeyLookup::Label(label.into()), Uri::default()));
    }
    if let Some(id) = name.strip_prefix("id:") {
        let id = hex::decode(id).map_err(|e| Refusal::bad(format!("{name}: {e}")))?;
        return Ok((KeyLookup::Id(id), Uri::default()));
    }
    let uri: Uri = name
        .parse()
        .map_err(|e: UriError| Refusal::bad(e.to_string()))?;
    if uri.names_token() {
        return Err(Refusal::bad(
            "the pool is one token: a key is named by object, id and type",
        ));
    }
    let asked = match (&uri.id, &uri.object) {
        (Some(id), _) => KeyLookup::Id(id.clone()),
        (None, Some(label)) => KeyLookup::Label(label.clone().into_bytes()),
        (None, None) => {
            return Err(Refusal::bad(format!(
                "{name} names no key: give object or id"
            )));
        }
    };
    // A name of a public half means the private one.
    let class = uri.class.filter(|class| *class != Class::PUBLIC_KEY);
    Ok((asked, Uri { class, ..uri }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_name_what_names_a_key_is_kept() {
        for (name, kept) in [
            ("", ""),
            ("orders-1", "orders-1"),
            ("label:web", "label:web"),
            ("label:web?pin-value=1234", "label:web"),
            ("id:0102", "id:0102"),
            (
                "pkcs11:id=%01;object=web;type=private;token=t?pin-source=file:/pin",
                "pkcs11:object=web;type=private;id=%01",
            ),
        ] {
            assert_eq!(spelling(name), kept, "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        let label = format!("label:{long}");
        for name in ["pkcs11:object=web?pin-value=1234", "a b", &long, &label] {
            let kept = spelling(name);
            assert!(kept.starts_with("name:") && kept.len() == 21, "{kept}");
        }
        assert_ne!(spelling("a b"), spelling("a c"));
    }
}
