//! Names of managed keys.

use std::fmt;
use std::str::FromStr;

use hsmux_pool::HIDDEN_LABEL;

/// A managed key's name: letters, digits, `_`, and within it `-` and `.`, as the dialect's paths have it.
///
/// It is the CKA_LABEL of the key's objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyName(String);

/// The longest name, in bytes. CKA_LABEL has no limit; file names and logs have.
const LONGEST: usize = 128;

impl KeyName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = text.len() <= LONGEST
            && text.starts_with(word)
            && text.ends_with(word)
            && text.chars().all(|c| word(c) || c == '-' || c == '.');
        if !good {
            return Err(format!(
                "{text:?} is no name of a key: 1 to {LONGEST} letters, digits, '_', and within it '-' and '.'"
            ));
        }
        if text.starts_with(HIDDEN_LABEL) {
            return Err(format!(
                "names that begin with {HIDDEN_LABEL} are hsmux's own"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        for good in ["a", "orders-2026", "a.b_c", "_x"] {
            assert_eq!(good.parse::<KeyName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(LONGEST + 1);
        for bad in [
            "",
            "-a",
            "a.",
            "a b",
            "a/b",
            "ä",
            "pkcs11:x",
            "hsmux-transport-1",
            &long,
        ] {
            assert!(bad.parse::<KeyName>().is_err(), "{bad}");
        }
    }
}
