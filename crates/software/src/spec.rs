//! Which kind of key is to be made.

use std::fmt;
use std::str::FromStr;

use hsmux_token::{Attributes, Error, Mechanism, Operation, ck};
use serde::{Deserialize, Serialize};

/// A kind of key: `rsa:2048`, `ec:p256`, `ed25519`, `aes:256`, `generic:256`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeySpec {
    /// RSA with a modulus of so many bits.
    Rsa(u64),
    /// A curve of [`CURVES`].
    Curve(&'static KeyCurve),
    /// AES with so many bits.
    Aes(u64),
    /// A generic secret (HMAC) of so many bits.
    Generic(u64),
}

/// A curve that keys can be made on.
#[derive(PartialEq, Eq, Debug)]
pub struct KeyCurve {
    name: &'static str,
    /// CKA_EC_PARAMS: the DER of the curve's object identifier.
    params: &'static [u8],
    mechanism: u64,
    key_type: u64,
}

const fn weierstrass(name: &'static str, params: &'static [u8]) -> KeyCurve {
    KeyCurve {
        name,
        params,
        mechanism: ck::CKM_EC_KEY_PAIR_GEN,
        key_type: ck::CKK_EC,
    }
}

/// Named as `ec:NAME`; Ed25519 by its name alone (RFC 5480, 5639, 8410; SEC 2).
pub const CURVES: &[KeyCurve] = &[
    weierstrass("p256", b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"),
    weierstrass("p384", b"\x06\x05\x2b\x81\x04\x00\x22"),
    weierstrass("p521", b"\x06\x05\x2b\x81\x04\x00\x23"),
    weierstrass("p224", b"\x06\x05\x2b\x81\x04\x00\x21"),
    weierstrass("secp256k1", b"\x06\x05\x2b\x81\x04\x00\x0a"),
    weierstrass(
        "brainpoolp256r1",
        b"\x06\x09\x2b\x24\x03\x03\x02\x08\x01\x01\x07",
    ),
    weierstrass(
        "brainpoolp384r1",
        b"\x06\x09\x2b\x24\x03\x03\x02\x08\x01\x01\x0b",
    ),
    KeyCurve {
        name: "ed25519",
        params: b"\x06\x03\x2b\x65\x70",
        mechanism: ck::CKM_EC_EDWARDS_KEY_PAIR_GEN,
        key_type: ck::CKK_EC_EDWARDS,
    },
];

impl KeyCurve {
    /// `p256`, `ed25519`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl KeySpec {
    /// The operation that makes such a key: it never leaves the tokens, and is shown after login only. It has no other
    /// uses than these. A token may refuse to be told so: [`refuses_template`], [`with_default_uses`].
    pub fn operation(self, label: &str, id: &[u8]) -> Operation {
        let named = |attributes: Attributes| {
            attributes
                .with_flag(ck::CKA_TOKEN, true)
                .with(ck::CKA_LABEL, label.as_bytes().to_vec())
                .with(ck::CKA_ID, id.to_vec())
        };
        let guarded = |attributes: Attributes| {
            named(attributes)
                .with_flag(ck::CKA_PRIVATE, true)
                .with_flag(ck::CKA_SENSITIVE, true)
                .with_flag(ck::CKA_EXTRACTABLE, false)
        };
        let pair = |mechanism, public, private| Operation::GeneratePair {
            mechanism: Mechanism::plain(mechanism),
            public: named(public).with_flag(ck::CKA_PRIVATE, false),
            private: guarded(private),
        };
        let secret = |mechanism, bits: u64, uses: &[u64]| Operation::Generate {
            mechanism: Mechanism::plain(mechanism),
            template: guarded(only(SECRET_USES, uses)).with_number(ck::CKA_VALUE_LEN, bits / 8),
        };
        match self {
            Self::Rsa(bits) => pair(
                ck::CKM_RSA_PKCS_KEY_PAIR_GEN,
                only(PUBLIC_USES, &[ck::CKA_VERIFY, ck::CKA_ENCRYPT])
                    .with_number(ck::CKA_MODULUS_BITS, bits)
                    .with(ck::CKA_PUBLIC_EXPONENT, vec![1, 0, 1]),
                only(PRIVATE_USES, &[ck::CKA_SIGN, ck::CKA_DECRYPT]),
            ),
            Self::Curve(curve) => pair(
                curve.mechanism,
                only(PUBLIC_USES, &[ck::CKA_VERIFY]).with(ck::CKA_EC_PARAMS, curve.params),
                match curve.key_type {
                    ck::CKK_EC => only(PRIVATE_USES, &[ck::CKA_SIGN, ck::CKA_DERIVE]),
                    _ => only(PRIVATE_USES, &[ck::CKA_SIGN]),
                },
            ),
            Self::Aes(bits) => {
                // Or for CMAC: the command does not say which.
                let uses = [
                    ck::CKA_ENCRYPT,
                    ck::CKA_DECRYPT,
                    ck::CKA_SIGN,
                    ck::CKA_VERIFY,
                ];
                secret(ck::CKM_AES_KEY_GEN, bits, &uses)
            }
            Self::Generic(bits) => {
                let uses = [ck::CKA_SIGN, ck::CKA_VERIFY];
                secret(ck::CKM_GENERIC_SECRET_KEY_GEN, bits, &uses)
            }
        }
    }
}

/// The uses that each class of keys can have (PKCS#11 2.40, tables 24, 26 and 28).
const PUBLIC_USES: &[u64] = &[
    ck::CKA_ENCRYPT,
    ck::CKA_VERIFY,
    ck::CKA_VERIFY_RECOVER,
    ck::CKA_WRAP,
    ck::CKA_DERIVE,
];
const PRIVATE_USES: &[u64] = &[
    ck::CKA_DECRYPT,
    ck::CKA_SIGN,
    ck::CKA_SIGN_RECOVER,
    ck::CKA_UNWRAP,
    ck::CKA_DERIVE,
];
const SECRET_USES: &[u64] = &[
    ck::CKA_ENCRYPT,
    ck::CKA_DECRYPT,
    ck::CKA_SIGN,
    ck::CKA_VERIFY,
    ck::CKA_WRAP,
    ck::CKA_UNWRAP,
    ck::CKA_DERIVE,
];

/// These uses, and none of the others of `all`.
fn only(all: &[u64], uses: &[u64]) -> Attributes {
    let with =
        |attributes: Attributes, kind: &u64| attributes.with_flag(*kind, uses.contains(kind));
    all.iter().fold(Attributes::default(), with)
}

/// True if a token has refused an attribute of a template: without it, the operation may succeed.
pub fn refuses_template(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            ck::CKR_TEMPLATE_INCONSISTENT
                | ck::CKR_ATTRIBUTE_TYPE_INVALID
                | ck::CKR_ATTRIBUTE_VALUE_INVALID
                | ck::CKR_ATTRIBUTE_READ_ONLY
        )
    )
}

/// The same operation with the token's defaults for all uses that it forbids.
#[must_use]
pub fn with_default_uses(mut operation: Operation) -> Operation {
    let templates = match &mut operation {
        Operation::Generate { template, .. } => vec![template],
        Operation::GeneratePair {
            public, private, ..
        } => vec![public, private],
        _ => Vec::new(),
    };
    for template in templates {
        let forbidden: Vec<_> = [PUBLIC_USES, PRIVATE_USES, SECRET_USES]
            .concat()
            .into_iter()
            .filter(|kind| template.flag(*kind) == Some(false))
            .collect();
        template
            .0
            .retain(|attribute| !forbidden.contains(&attribute.kind));
    }
    operation
}

impl FromStr for KeySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (kind, size) = lower.split_once([':', '-']).unwrap_or((&lower, ""));
        let bits = |default: u64, range: std::ops::RangeInclusive<u64>, step: u64| {
            let bits = if size.is_empty() {
                Ok(default)
            } else {
                size.parse()
            };
            let good = |bits: &u64| range.contains(bits) && bits.is_multiple_of(step);
            bits.ok().filter(good).ok_or_else(|| {
                format!(
                    "{text:?}: {kind} has {} to {} bits, in steps of {step}",
                    range.start(),
                    range.end()
                )
            })
        };
        match kind {
            "rsa" => bits(2048, 1024..=16384, 64).map(Self::Rsa),
            "aes" => bits(256, 128..=256, 64).map(Self::Aes),
            "generic" | "hmac" => bits(256, 8..=8192, 8).map(Self::Generic),
            _ => curve(kind, size)
                .map(Self::Curve)
                .ok_or_else(|| unknown(text)),
        }
    }
}

/// By `ec:NAME` or by the name alone, with and without the dash of `P-256`.
fn curve(kind: &str, size: &str) -> Option<&'static KeyCurve> {
    let name = match kind {
        "ec" => size.replace('-', ""),
        _ => format!("{kind}{size}"),
    };
    let alias = match name.as_str() {
        "secp256r1" | "prime256v1" => "p256",
        "secp384r1" => "p384",
        "secp521r1" => "p521",
        "secp224r1" => "p224",
        "" if kind == "ec" => "p256",
        other => other,
    };
    CURVES.iter().find(|curve| curve.name == alias)
}

fn unknown(text: &str) -> String {
    let curves: Vec<_> = CURVES.iter().map(|curve| curve.name).collect();
    format!(
        "{text:?} is no kind of key; there are rsa:BITS, aes:BITS, generic:BITS, and ec:CURVE with {}",
        curves.join(", ")
    )
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "rsa:{bits}"),
            Self::Curve(curve) => write!(f, "ec:{}", curve.name),
            Self::Aes(bits) => write!(f, "aes:{bits}"),
            Self::Generic(bits) => write!(f, "generic:{bits}"),
        }
    }
}

impl TryFrom<String> for KeySpec {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KeySpec> for String {
    fn from(spec: KeySpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_uses_of_its_kind_and_no_others() {
        let templates = |operation| match operation {
            Operation::Generate { template, .. } => vec![template],
            Operation::GeneratePair {
                public, private, ..
            } => vec![public, private],
            other => panic!("{other:?}"),
        };
        let uses = |template: &Attributes, value| {
            let all = [PUBLIC_USES, PRIVATE_USES, SECRET_USES].concat();
            let mut uses: Vec<_> = { all.into_iter() }
                .filter(|kind| template.flag(*kind) == Some(value))
                .collect();
            uses.sort_unstable();
            uses.dedup();
            uses
        };
        for (text, own) in [
            (
                "rsa:2048",
                &[
                    &[ck::CKA_ENCRYPT, ck::CKA_VERIFY][..],
                    &[ck::CKA_DECRYPT, ck::CKA_SIGN],
                ][..],
            ),
            (
                "ec:p256",
                &[&[ck::CKA_VERIFY], &[ck::CKA_SIGN, ck::CKA_DERIVE]],
            ),
            ("ed25519", &[&[ck::CKA_VERIFY], &[ck::CKA_SIGN]]),
            (
                "aes:256",
                &[&[
                    ck::CKA_ENCRYPT,
                    ck::CKA_DECRYPT,
                    ck::CKA_SIGN,
                    ck::CKA_VERIFY,
                ]],
            ),
            ("generic:256", &[&[ck::CKA_SIGN, ck::CKA_VERIFY]]),
        ] {
            let operation = text.parse::<KeySpec>().unwrap().operation("x", b"1");
            let strict = templates(operation.clone());
            let by_default = templates(with_default_uses(operation));
            assert_eq!(strict.len(), own.len(), "{text}");
            for ((strict, by_default), own) in strict.iter().zip(&by_default).zip(own) {
                assert_eq!(uses(strict, true), *own, "{text}");
                assert!(!uses(strict, false).is_empty(), "{text}");
                assert_eq!(uses(by_default, true), *own, "{text}");
                assert_eq!(uses(by_default, false), [0; 0], "{text}");
                let refused = uses(strict, false).len();
                assert_eq!(strict.0.len(), by_default.0.len() + refused, "{text}");
            }
        }
    }

    #[test]
    fn kinds_by_their_names() {
        for (text, printed) in [
            ("rsa:3072", "rsa:3072"),
            ("RSA-2048", "rsa:2048"),
            ("rsa", "rsa:2048"),
            ("ec:P-256", "ec:p256"),
            ("p-384", "ec:p384"),
            ("ec", "ec:p256"),
            ("prime256v1", "ec:p256"),
            ("ed25519", "ec:ed25519"),
            ("ec:ed25519", "ec:ed25519"),
            ("aes:128", "aes:128"),
            ("hmac:512", "generic:512"),
        ] {
            let spec: KeySpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), printed);
            assert_eq!(printed.parse(), Ok(spec));
        }
        for (text, words) in [
            ("rsa:100", "1024 to 16384"),
            ("rsa:2049", "steps of 64"),
            ("aes:129", "steps of 64"),
            ("ec:p257", "brainpoolp256r1"),
            ("dsa:1024", "there are rsa"),
        ] {
            let error = text.parse::<KeySpec>().unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
