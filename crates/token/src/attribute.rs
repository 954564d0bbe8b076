//! Attributes of objects, as PKCS#11 writes them (PKCS#11 3.0, section 2.2 and 4).

use crate::{Blob, Borrow, ck};
use minicbor::{Decode, Encode};

/// One attribute: its `CKA_*` number and its value.
///
/// A number (`CK_ULONG`) is 8 bytes, little-endian; a `CK_BBOOL` 1 byte; all else as the standard has it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array, context_bound = "Borrow")]
pub struct Attribute {
    /// `CKA_*`.
    #[n(0)]
    pub kind: u64,
    /// The value.
    #[n(1)]
    pub value: Blob,
}

/// A template, or all that can be read of an object; in the order given.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(transparent, context_bound = "Borrow")]
pub struct Attributes(#[n(0)] pub Vec<Attribute>);

impl Attributes {
    /// The value of an attribute, if it is there.
    pub fn get(&self, kind: u64) -> Option<&[u8]> {
        let found = self.0.iter().find(|a| a.kind == kind)?;
        Some(&found.value)
    }

    /// A `CK_BBOOL`; an absent or malformed one is `None`.
    pub fn flag(&self, kind: u64) -> Option<bool> {
        match self.get(kind)? {
            [byte] => Some(*byte != ck::CK_FALSE),
            _ => None,
        }
    }

    /// A `CK_ULONG`; an absent or malformed one is `None`.
    pub fn number(&self, kind: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// A text (RFC 2279), with what is not UTF-8 replaced.
    pub fn text(&self, kind: u64) -> Option<String> {
        Some(String::from_utf8_lossy(self.get(kind)?).into_owned())
    }

    /// Sets an attribute, in place of an earlier value.
    pub fn set(&mut self, kind: u64, value: impl Into<bytes::Bytes>) {
        let value = Blob(value.into());
        match self.0.iter_mut().find(|a| a.kind == kind) {
            Some(found) => found.value = value,
            None => self.0.push(Attribute { kind, value }),
        }
    }

    /// Sets a `CK_BBOOL`.
    pub fn set_flag(&mut self, kind: u64, value: bool) {
        self.set(kind, vec![u8::from(value)]);
    }

    /// Sets a `CK_ULONG`.
    pub fn set_number(&mut self, kind: u64, value: u64) {
        self.set(kind, value.to_le_bytes().to_vec());
    }

    /// Takes an attribute out.
    pub fn remove(&mut self, kind: u64) -> Option<Blob> {
        let at = self.0.iter().position(|a| a.kind == kind)?;
        Some(self.0.remove(at).value)
    }

    /// Builder: with a flag.
    #[must_use]
    pub fn with_flag(mut self, kind: u64, value: bool) -> Self {
        self.set_flag(kind, value);
        self
    }

    /// Builder: with a number.
    #[must_use]
    pub fn with_number(mut self, kind: u64, value: u64) -> Self {
        self.set_number(kind, value);
        self
    }

    /// Builder: with bytes.
    #[must_use]
    pub fn with(mut self, kind: u64, value: impl Into<bytes::Bytes>) -> Self {
        self.set(kind, value);
        self
    }

    /// Whether every attribute of `template` is here with the same value (C_FindObjectsInit).
    pub fn matches(&self, template: &Self) -> bool {
        template
            .0
            .iter()
            .all(|wanted| self.get(wanted.kind) == Some(&wanted.value))
    }
}
