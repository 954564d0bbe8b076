//! PKCS#11 URIs (RFC 7512): how people and configuration files name tokens and keys.

mod escape;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use self::escape::{decoded, encoded};
use crate::{Class, Object, TokenInfo, ck};
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// A PKCS#11 URI. An attribute that is absent matches everything.
///
/// `pin-value` is refused: a PIN in a URI ends in argv, in logs and in backups.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Uri {
    /// `token`: the token's label.
    pub token: Option<String>,
    /// `manufacturer`: of the token.
    pub manufacturer: Option<String>,
    /// `serial`: the token's serial number.
    pub serial: Option<String>,
    /// `model`: of the token.
    pub model: Option<String>,
    /// `library-manufacturer`.
    pub library_manufacturer: Option<String>,
    /// `library-description`.
    pub library_description: Option<String>,
    /// `library-version`: major and minor.
    pub library_version: Option<(u8, u8)>,
    /// `slot-manufacturer`.
    pub slot_manufacturer: Option<String>,
    /// `slot-description`.
    pub slot_description: Option<String>,
    /// `slot-id`.
    pub slot_id: Option<u64>,
    /// `object`: CKA_LABEL.
    pub object: Option<String>,
    /// `type`: CKA_CLASS.
    pub class: Option<Class>,
    /// `id`: CKA_ID.
    pub id: Option<Vec<u8>>,
    /// `pin-source`: where the PIN is, as the URI gives it.
    pub pin_source: Option<String>,
    /// `module-name`: the module's file name without path and suffix.
    pub module_name: Option<String>,
    /// `module-path`: the module's file.
    pub module_path: Option<String>,
}

/// Why a text is not a PKCS#11 URI, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} (at character {position} of {uri:?})")]
pub struct UriError {
    /// Where, in characters from 1.
    pub position: usize,
    /// What is wrong, with the attribute's name.
    pub message: String,
    /// The whole text, with the value of a `pin-value` blotted out.
    uri: String,
}

impl Uri {
    /// Whether it can mean this token in this slot. The slot's and the library's own texts are not
    /// in [`TokenInfo`]: whoever has them compares them besides.
    pub fn matches_token(&self, info: &TokenInfo, slot_id: Option<u64>) -> bool {
        same(self.token.as_deref(), &info.label)
            && same(self.manufacturer.as_deref(), &info.manufacturer)
            && same(self.serial.as_deref(), &info.serial)
            && same(self.model.as_deref(), &info.model)
            && same(self.library_description.as_deref(), &info.library)
            && self
                .library_version
                .is_none_or(|wanted| wanted == info.library_version)
            && self.slot_id.is_none_or(|wanted| slot_id == Some(wanted))
    }

    /// Whether it can mean this object, by label, id and class.
    pub fn matches_object(&self, object: &Object) -> bool {
        let has = |kind, wanted: Option<&[u8]>| {
            wanted.is_none_or(|wanted| object.attributes.get(kind).unwrap_or_default() == wanted)
        };
        self.class.is_none_or(|wanted| wanted == object.id.class)
            && has(ck::CKA_LABEL, self.object.as_deref().map(str::as_bytes))
            && has(ck::CKA_ID, self.id.as_deref())
    }

    /// Whether it says anything that picks a token.
    pub fn names_token(&self) -> bool {
        let texts = [
            &self.token,
            &self.manufacturer,
            &self.serial,
            &self.model,
            &self.slot_manufacturer,
            &self.slot_description,
        ];
        self.slot_id.is_some() || texts.iter().any(|text| text.is_some())
    }

    /// Whether it says anything that picks an object.
    pub fn names_object(&self) -> bool {
        self.object.is_some() || self.class.is_some() || self.id.is_some()
    }

    /// Whether it has an object's label or id.
    pub fn names_by_label_or_id(&self) -> bool {
        self.object.is_some() || self.id.is_some()
    }

    fn set(&mut self, name: &str, value: Vec<u8>) -> Result<(), String> {
        if name == "id" {
            return once(&mut self.id, name, value);
        }
        let text = String::from_utf8(value).map_err(|_| format!("{name}: not UTF-8"))?;
        match name {
            "slot-id" => {
                let id = text
                    .parse()
                    .map_err(|_| format!("slot-id: {text:?} is not a decimal number"))?;
                once(&mut self.slot_id, name, id)
            }
            "library-version" => once(&mut self.library_version, name, version(&text)?),
            "type" => once(&mut self.class, name, class(&text)?),
            "pin-value" => Err(
                "pin-value: a PIN does not belong in a URI, which others can read; \
                 give it by file, by environment or at the prompt"
                    .into(),
            ),
            _ => match self.text(name) {
                Some(field) => once(field, name, text),
                None => Err(unknown(name)),
            },
        }
    }

    /// The field of a text attribute.
    fn text(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            "token" => &mut self.token,
            "manufacturer" => &mut self.manufacturer,
            "serial" => &mut self.serial,
            "model" => &mut self.model,
            "library-manufacturer" => &mut self.library_manufacturer,
            "library-description" => &mut self.library_description,
            "slot-manufacturer" => &mut self.slot_manufacturer,
            "slot-description" => &mut self.slot_description,
            "object" => &mut self.object,
            "pin-source" => &mut self.pin_source,
            "module-name" => &mut self.module_name,
            "module-path" => &mut self.module_path,
            _ => return None,
        })
    }
}

/// `id` stands apart: its value is bytes.
const PATH: [&str; 13] = [
    "token",
    "manufacturer",
    "serial",
    "model",
    "library-manufacturer",
    "library-description",
    "library-version",
    "slot-manufacturer",
    "slot-description",
    "slot-id",
    "object",
    "type",
    "id",
];
const QUERY: [&str; 4] = ["pin-source", "pin-value", "module-name", "module-path"];

/// RFC 7512, section 2.3, and CKO_* for each.
const TYPES: [(&str, Class); 5] = [
    ("public", Class::PUBLIC_KEY),
    ("private", Class::PRIVATE_KEY),
    ("cert", Class::CERTIFICATE),
    ("secret-key", Class::SECRET_KEY),
    ("data", Class::DATA),
];

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let fail = |offset: usize, message: String| UriError {
            position: text[..offset].chars().count() + 1,
            message: without_pin(&message),
            uri: without_pin(text),
        };
        let scheme = text.get(..7).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("pkcs11:") {
            let message = "not a PKCS#11 URI, which is like pkcs11:token=hsm1;object=web";
            return Err(fail(0, message.into()));
        }
        let (path, query) = text[7..].split_once('?').unwrap_or((&text[7..], ""));
        let mut uri = Self::default();
        for (part, separator, names) in [(path, ';', &PATH[..]), (query, '&', &QUERY[..])] {
            for pair in part.split(separator).filter(|pair| !pair.is_empty()) {
                let offset = pair.as_ptr() as usize - text.as_ptr() as usize;
                let Some((name, value)) = pair.split_once('=') else {
                    return Err(fail(offset, format!("{pair:?} has no '='")));
                };
                let known = PATH.contains(&name) || QUERY.contains(&name);
                if known && !names.contains(&name) {
                    return Err(fail(offset, misplaced(name)));
                }
                let value_offset = offset + name.len() + 1;
                let value = decoded(value)
                    .map_err(|(at, why)| fail(value_offset + at, format!("{name}: {why}")))?;
                uri.set(name, value).map_err(|why| fail(offset, why))?;
            }
        }
        Ok(uri)
    }
}

fn same(wanted: Option<&str>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

fn once<T>(field: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{name} stands twice")),
    }
}

fn misplaced(name: &str) -> String {
    if QUERY.contains(&name) {
        format!("{name} belongs behind a '?'")
    } else {
        format!("{name} belongs before the '?'")
    }
}

/// A longer name is no slip of a known one, in bytes; to compare it would take time and memory with its length.
const LONGEST_SLIP: usize = 64;

fn unknown(name: &str) -> String {
    let near = PATH
        .iter()
        .chain(&QUERY)
        .filter(|_| name.len() <= LONGEST_SLIP)
        .map(|known| (strsim::damerau_levenshtein(known, name), known))
        .min();
    match near {
        Some((distance, known)) if distance <= 2 + name.len() / 6 => {
            format!("unknown attribute {name:?}; did you mean {known:?}?")
        }
        _ => format!("unknown attribute {name:?}; there are {}", PATH.join(", ")),
    }
}

fn class(text: &str) -> Result<Class, String> {
    let found = TYPES.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, class)| *class)
        .ok_or_else(|| format!("type: {text:?} is none of public, private, cert, secret-key, data"))
}

fn version(text: &str) -> Result<(u8, u8), String> {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => Ok((major, minor)),
        _ => Err(format!("library-version: {text:?} is not like 2.6")),
    }
}

/// An error message may be logged; a PIN may not. Also one that a wrong separator has made part of another value.
fn without_pin(text: &str) -> String {
    const NAME: &str = "pin-value=";
    let lower = text.to_ascii_lowercase();
    let mut said = String::with_capacity(text.len());
    let mut rest = 0;
    while let Some(found) = lower[rest..].find(NAME) {
        let value = rest + found + NAME.len();
        said.push_str(&text[rest..value]);
        said.push_str("...");
        rest = text[value..].find('&').map_or(text.len(), |n| value + n);
    }
    said + &text[rest..]
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.library_version.map(|(a, b)| format!("{a}.{b}"));
        let slot_id = self.slot_id.map(|id| id.to_string());
        let class = self
            .class
            .and_then(|class| TYPES.iter().find(|(_, known)| *known == class))
            .map(|(name, _)| (*name).to_owned());
        let path = [
            &self.token,
            &self.manufacturer,
            &self.serial,
            &self.model,
            &self.library_manufacturer,
            &self.library_description,
            &version,
            &self.slot_manufacturer,
            &self.slot_description,
            &slot_id,
            &self.object,
            &class,
        ];
        let query = [
            ("pin-source", &self.pin_source),
            ("module-name", &self.module_name),
            ("module-path", &self.module_path),
        ];
        f.write_str("pkcs11:")?;
        let mut separator = "";
        for (name, value) in PATH.into_iter().zip(path) {
            if let Some(value) = value {
                write!(f, "{separator}{name}=")?;
                encoded(f, value.as_bytes(), true)?;
                separator = ";";
            }
        }
        if let Some(id) = &self.id {
            write!(f, "{separator}id=")?;
            encoded(f, id, false)?;
        }
        separator = "?";
        for (name, value) in query {
            if let Some(value) = value {
                write!(f, "{separator}{name}=")?;
                encoded(f, value.as_bytes(), true)?;
                separator = "&";
            }
        }
        Ok(())
    }
}

impl<C> Encode<C> for Uri {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.str(&self.to_string())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Uri {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        d.str()?.parse().map_err(decode::Error::message)
    }
}
