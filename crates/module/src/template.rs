//! Attributes as C structures.

use hsmux_token::ck::{CK_ATTRIBUTE, CKA_ALLOWED_MECHANISMS};
use hsmux_token::{Attributes, Error, Kind, Result};
use smallvec::SmallVec;
use std::marker::PhantomData;

/// CKF_ARRAY_ATTRIBUTE (PKCS#11 3.0, section 4.1): the value is an array of structures with pointers.
const ARRAY: u64 = 0x4000_0000;

/// An array of CK_ATTRIBUTE that borrows a template's values.
pub(crate) struct Template<'a> {
    raw: SmallVec<[CK_ATTRIBUTE; 16]>,
    /// Aligned copies of possible numbers: a module reads them as CK_ULONG.
    numbers: Box<[u64]>,
    values: PhantomData<&'a [u8]>,
}

impl<'a> Template<'a> {
    /// Refuses nested templates, because their values would be foreign pointers.
    pub(crate) fn new(attributes: &'a Attributes) -> Result<Self> {
        let numbers = attributes.0.iter().filter_map(|a| number(&a.value));
        let mut template = Self {
            raw: SmallVec::with_capacity(attributes.0.len()),
            numbers: numbers.collect(),
            values: PhantomData,
        };
        let mut numbers = template.numbers.iter();
        for attribute in &attributes.0 {
            if attribute.kind & ARRAY != 0 && attribute.kind != CKA_ALLOWED_MECHANISMS {
                return Err(Error::request(
                    Kind::Unsupported,
                    format!("attribute 0x{:08x}: nested templates", attribute.kind),
                ));
            }
            let value = match number(&attribute.value).and_then(|_| numbers.next()) {
                Some(copy) => std::ptr::from_ref(copy).cast(),
                None => attribute.value.as_ptr(),
            };
            template.raw.push(CK_ATTRIBUTE {
                type_: attribute.kind,
                pValue: value.cast_mut().cast(),
                ulValueLen: attribute.value.len() as u64,
            });
        }
        Ok(template)
    }

    /// The array and its length, for the calls.
    pub(crate) fn raw(&mut self) -> (*mut CK_ATTRIBUTE, u64) {
        (self.raw.as_mut_ptr(), self.raw.len() as u64)
    }
}

fn number(value: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(value.try_into().ok()?))
}
