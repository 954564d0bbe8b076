//! CK_ATTRIBUTE arrays: templates that come in, and values that go out.

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{Attribute, Attributes, Blob};

use super::pointer::slice;
use crate::object::AttributeValue;
use crate::rv::{Result, Rv};

/// No object has as many attributes, and reading so many takes seconds.
const MOST: CK_ULONG = 1 << 16;

/// The array itself; [`CKR_ARGUMENTS_BAD`] if its length cannot be meant.
///
/// # Safety
/// `pTemplate` is null or valid for `count` attributes, until the call returns.
pub unsafe fn array<'a>(
    template: *const CK_ATTRIBUTE,
    count: CK_ULONG,
) -> Result<&'a [CK_ATTRIBUTE]> {
    if count > MOST {
        return Err(Rv(CKR_ARGUMENTS_BAD));
    }
    // SAFETY: valid by this function's own contract.
    unsafe { slice(template, count) }
}

/// A template, copied out of the application's memory.
///
/// # Safety
/// `pTemplate` is null or valid for `count` attributes, and each of them for its own value.
pub unsafe fn read(template: *const CK_ATTRIBUTE, count: CK_ULONG) -> Result<Attributes> {
    // SAFETY: valid by this function's own contract.
    let template = unsafe { array(template, count)? };
    let attributes = template.iter().map(|attribute| {
        if holds_pointers(attribute.type_) && attribute.ulValueLen > 0 {
            // A template within a template is nothing that could travel.
            return Err(Rv(CKR_ATTRIBUTE_TYPE_INVALID));
        }
        // SAFETY: as above.
        let value = unsafe { slice(attribute.pValue.cast::<u8>(), attribute.ulValueLen) };
        Ok(Attribute {
            kind: attribute.type_,
            value: Blob(Bytes::copy_from_slice(
                value.map_err(|_| Rv(CKR_ATTRIBUTE_VALUE_INVALID))?,
            )),
        })
    });
    Ok(Attributes(attributes.collect::<Result<_>>()?))
}

fn holds_pointers(kind: CK_ATTRIBUTE_TYPE) -> bool {
    kind & CKF_ARRAY_ATTRIBUTE != 0 && kind != CKA_ALLOWED_MECHANISMS
}

/// Answers C_GetAttributeValue: every attribute is answered, also after one that could not be.
///
/// # Safety
/// `pTemplate` is null or valid for `count` attributes, and each of them writable for its length.
pub unsafe fn fill<'a>(
    template: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
    mut value: impl FnMut(CK_ATTRIBUTE_TYPE) -> AttributeValue<'a>,
) -> Result {
    // SAFETY: valid by this function's own contract; only the count is of interest here.
    let count = unsafe { array(template, count)?.len() };
    let mut answer = Ok(());
    for at in 0..count {
        // SAFETY: within the array.
        let attribute = unsafe { &mut *template.add(at) };
        // SAFETY: the place is writable for its length by this function's own contract.
        let one = unsafe { fill_one(attribute, &value(attribute.type_)) };
        answer = answer.and(one);
    }
    answer
}

unsafe fn fill_one(attribute: &mut CK_ATTRIBUTE, value: &AttributeValue) -> Result {
    let value = match value {
        AttributeValue::Known(value) => value.as_ref(),
        AttributeValue::Sensitive => {
            attribute.ulValueLen = CK_UNAVAILABLE_INFORMATION;
            return Err(Rv(CKR_ATTRIBUTE_SENSITIVE));
        }
        AttributeValue::Unknown => {
            attribute.ulValueLen = CK_UNAVAILABLE_INFORMATION;
            return Err(Rv(CKR_ATTRIBUTE_TYPE_INVALID));
        }
    };
    let len = value.len() as CK_ULONG;
    let room = attribute.ulValueLen;
    attribute.ulValueLen = len;
    if attribute.pValue.is_null() {
        return Ok(());
    }
    // An attribute that an earlier call has marked as unavailable has no room either.
    if len > room || room == CK_UNAVAILABLE_INFORMATION {
        attribute.ulValueLen = CK_UNAVAILABLE_INFORMATION;
        return Err(Rv(CKR_BUFFER_TOO_SMALL));
    }
    // SAFETY: there is room for it by the caller's contract.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), attribute.pValue.cast(), value.len()) };
    Ok(())
}
