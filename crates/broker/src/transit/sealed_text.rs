//! `vault:v1:...`: the output of a key, with the version that made it.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::STANDARD;

use crate::refusal::Refusal;

/// The output of a version of a key.
#[derive(PartialEq, Eq, Debug)]
pub struct SealedText {
    /// From 1.
    pub version: u32,
    /// The bytes of the output.
    pub bytes: Vec<u8>,
}

impl SealedText {
    /// As the dialect writes it.
    pub fn write(version: u32, bytes: &[u8]) -> String {
        Self::write_by(version, bytes, &STANDARD)
    }

    /// The same in another base64.
    pub fn write_by(version: u32, bytes: &[u8], base64: &GeneralPurpose) -> String {
        format!("vault:v{version}:{}", base64.encode(bytes))
    }

    /// Reads a ciphertext.
    pub fn read(text: &str) -> Result<Self, Refusal> {
        Self::read_by(text, "ciphertext", &STANDARD)
    }

    /// Reads `what`, in this base64.
    pub fn read_by(text: &str, what: &str, base64: &GeneralPurpose) -> Result<Self, Refusal> {
        let wrong = |why: &str| Refusal::bad(format!("invalid {what}: {why}"));
        let rest = text
            .strip_prefix("vault:v")
            .ok_or_else(|| wrong("no prefix"))?;
        let (number, text) = rest
            .split_once(':')
            .ok_or_else(|| wrong("wrong number of fields"))?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let version = number.parse().ok().filter(|version| digits && *version > 0);
        let version = version.ok_or_else(|| wrong("version number could not be decoded"))?;
        let bytes = base64
            .decode(text)
            .map_err(|_| wrong("could not decode base64"))?;
        Ok(Self { version, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let text = SealedText::write(12, b"abc");
        assert_eq!(text, "vault:v12:YWJj");
        let sealed = SealedText::read(&text).unwrap();
        assert_eq!((sealed.version, &sealed.bytes[..]), (12, &b"abc"[..]));
    }

    #[test]
    fn what_is_not_one_is_said() {
        for (text, why) in [
            ("", "no prefix"),
            ("YWJj", "no prefix"),
            ("vault:v1", "fields"),
            ("vault:v0:YWJj", "version"),
            ("vault:v+1:YWJj", "version"),
            ("vault:v99999999999:YWJj", "version"),
            ("vault:v1:YWJ", "base64"),
            ("vault:v1:YW Jj", "base64"),
        ] {
            let refused = SealedText::read(text).unwrap_err();
            assert!(refused.text().contains(why), "{text}: {refused:?}");
            assert_eq!(refused.status.as_u16(), 400);
        }
    }
}
