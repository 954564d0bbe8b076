//! Numbers and flags, also as text: the dialect's command lines send everything as text.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Loose<T> {
    Value(T),
    Text(String),
    Nothing,
}

/// `1`, `"1"`; absent, null and `""` are `None`.
pub fn value<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr,
    T::Err: Display,
{
    match Loose::deserialize(deserializer)? {
        Loose::Value(value) => Ok(Some(value)),
        Loose::Text(text) if text.is_empty() => Ok(None),
        Loose::Text(text) => text.parse().map(Some).map_err(D::Error::custom),
        Loose::Nothing => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #[derive(serde::Deserialize)]
    struct Read {
        #[serde(default, deserialize_with = "super::value")]
        number: Option<u32>,
        #[serde(default, deserialize_with = "super::value")]
        flag: Option<bool>,
    }

    #[test]
    fn as_values_and_as_text() {
        let read = |json: &str| serde_json::from_str::<Read>(json).map(|r| (r.number, r.flag));
        let both = (Some(7), Some(true));
        assert_eq!(read(r#"{"number": 7, "flag": true}"#).unwrap(), both);
        assert_eq!(read(r#"{"number": "7", "flag": "true"}"#).unwrap(), both);
        assert_eq!(
            read(r#"{"number": null, "flag": ""}"#).unwrap(),
            (None, None)
        );
        assert_eq!(read("{}").unwrap(), (None, None));
        for wrong in [r#"{"number": -1}"#, r#"{"number": "x"}"#, r#"{"flag": []}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
