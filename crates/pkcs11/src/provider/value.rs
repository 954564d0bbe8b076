//! The values of OpenSSL's parameters, free of pointers (OSSL_PARAM(3)).

use std::borrow::Cow;
use std::ffi::CStr;
use std::fmt;

/// The value of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamValue<'a> {
    /// A number that fits.
    Int(i64),
    /// A positive number of any length, big-endian.
    Number(Cow<'a, [u8]>),
    /// A text.
    Text(&'a str),
    /// A text that is always there, also for who takes a pointer to it.
    Name(&'static CStr),
    /// Octets.
    Bytes(Cow<'a, [u8]>),
}

/// As an error names it.
impl fmt::Display for ParamValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.text()) {
            (_, Some(text)) => f.write_str(text),
            (Self::Int(number), _) => number.fmt(f),
            (Self::Number(bytes) | Self::Bytes(bytes), _) => write!(f, "of {} bytes", bytes.len()),
            (Self::Text(_) | Self::Name(_), None) => f.write_str("that is no text"),
        }
    }
}

impl ParamValue<'_> {
    /// A length, or another number of the kind.
    pub fn size(size: usize) -> Self {
        Self::Int(i64::try_from(size).unwrap_or(i64::MAX))
    }

    /// The number, if it is one that fits.
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Number(bytes) => bytes.iter().try_fold(0_i64, |all, byte| {
                all.checked_mul(1 << 8)?.checked_add(i64::from(*byte))
            }),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Name(name) => name.to_str().ok(),
            _ => None,
        }
    }
}
