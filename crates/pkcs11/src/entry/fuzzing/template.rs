//! CK_ATTRIBUTE arrays.

use std::borrow::Cow;

use hsmux_token::ck::*;
use hsmux_token::{Attribute, Attributes, Blob};

use super::input::{FuzzArray, FuzzInput};
use crate::entry::template;
use crate::object::AttributeValue;
use crate::rv::Rv;

/// Attributes whose meaning the library knows.
const KINDS: [CK_ATTRIBUTE_TYPE; 24] = [
    CKA_CLASS,
    CKA_TOKEN,
    CKA_PRIVATE,
    CKA_LABEL,
    CKA_ID,
    CKA_KEY_TYPE,
    CKA_SENSITIVE,
    CKA_EXTRACTABLE,
    CKA_SIGN,
    CKA_DECRYPT,
    CKA_UNWRAP,
    CKA_DERIVE,
    CKA_VALUE,
    CKA_VALUE_LEN,
    CKA_MODULUS,
    CKA_MODULUS_BITS,
    CKA_PUBLIC_EXPONENT,
    CKA_EC_PARAMS,
    CKA_EC_POINT,
    CKA_ALLOWED_MECHANISMS,
    CKA_WRAP_TEMPLATE,
    CKA_UNWRAP_TEMPLATE,
    CKA_DERIVE_TEMPLATE,
    CKA_START_DATE,
];

/// Reads a template that the input describes, checks what was read, and has it filled with answers.
pub fn template(input: &[u8]) -> Option<Attributes> {
    let input = &mut FuzzInput(input);
    let head = input.byte();
    let mut values: Vec<_> = (0..head % 16)
        .map(|_| {
            let kind = input.byte();
            let kind = KINDS.get(usize::from(kind)).copied();
            (kind.unwrap_or_else(|| input.number()), input.array())
        })
        .collect();
    let mut rows: Box<[_]> = values.iter_mut().map(row).collect();
    if head & 0x80 != 0 {
        refuses_what_is_no_array(&mut rows, input.byte());
    }
    // SAFETY: rows and values are valid for their lengths, or have lengths that `slice` refuses.
    let read = unsafe { template::read(rows.as_ptr(), rows.len() as CK_ULONG) };
    assert_eq!(read, expected(&values));
    fill(&mut rows, &values, input);
    read.ok()
}

fn row((kind, array): &mut (CK_ATTRIBUTE_TYPE, FuzzArray)) -> CK_ATTRIBUTE {
    CK_ATTRIBUTE {
        type_: *kind,
        pValue: array.pointer(),
        ulValueLen: array.len,
    }
}

/// A model of `read`, by what the standard says.
fn expected(values: &[(CK_ATTRIBUTE_TYPE, FuzzArray)]) -> Result<Attributes, Rv> {
    let one = |(kind, array): &(CK_ATTRIBUTE_TYPE, FuzzArray)| {
        // Values of these are structures with pointers; that of CKA_ALLOWED_MECHANISMS is numbers.
        let nested = kind & CKF_ARRAY_ATTRIBUTE != 0 && *kind != CKA_ALLOWED_MECHANISMS;
        match array {
            _ if nested && array.len > 0 => Err(Rv(CKR_ATTRIBUTE_TYPE_INVALID)),
            FuzzArray {
                readable: false, ..
            } => Err(Rv(CKR_ATTRIBUTE_VALUE_INVALID)),
            _ => Ok(Attribute {
                kind: *kind,
                value: Blob(array.data().unwrap_or_default().to_vec().into()),
            }),
        }
    };
    values
        .iter()
        .map(one)
        .collect::<Result<_, _>>()
        .map(Attributes)
}

fn refuses_what_is_no_array(rows: &mut [CK_ATTRIBUTE], how: u8) {
    let count = rows.len() as CK_ULONG;
    let refused = |at: *const CK_ATTRIBUTE, count| {
        // SAFETY: null, not aligned, or longer than any object: none of them is read.
        let read = unsafe { template::read(at, count) };
        assert_eq!(read, Err(Rv(CKR_ARGUMENTS_BAD)));
    };
    match how % 3 {
        0 => refused(std::ptr::null(), count.max(1)),
        1 => refused(
            rows.as_ptr().wrapping_byte_add(1 + usize::from(how % 7)),
            count,
        ),
        _ => refused(rows.as_ptr(), CK_ULONG::MAX / CK_ULONG::from(1 + how % 32)),
    }
}

/// C_GetAttributeValue into the same memory: what fits is written, and not a byte beyond.
fn fill(
    rows: &mut [CK_ATTRIBUTE],
    values: &[(CK_ATTRIBUTE_TYPE, FuzzArray)],
    input: &mut FuzzInput,
) {
    // A place that is not as long as it says would be written to.
    let room: Vec<_> = rows
        .iter_mut()
        .zip(values)
        .map(|(row, (_, array))| {
            let room = array.data().unwrap_or_default();
            if !array.readable {
                row.ulValueLen = if input.byte() & 1 == 0 {
                    CK_UNAVAILABLE_INFORMATION
                } else {
                    room.len() as CK_ULONG
                };
            }
            (row.ulValueLen, room.to_vec())
        })
        .collect();
    let answers: Vec<_> = rows.iter().map(|_| answer(input)).collect();
    let mut next = answers.iter();
    let count = rows.len() as CK_ULONG;
    // SAFETY: each row is writable for its length, or says that it has none.
    let rv = unsafe {
        template::fill(rows.as_mut_ptr(), count, |_| match next.next() {
            Some(FuzzAttribute::Known(value)) => AttributeValue::Known(Cow::Borrowed(value)),
            Some(FuzzAttribute::Sensitive) => AttributeValue::Sensitive,
            _ => AttributeValue::Unknown,
        })
    };
    let mut all_filled = true;
    for (((row, (len, before)), answer), (_, array)) in
        rows.iter().zip(room).zip(&answers).zip(values)
    {
        let now = array.data();
        let (filled, said) = match answer {
            FuzzAttribute::Known(value) if now.is_none() => (true, value.len() as CK_ULONG),
            FuzzAttribute::Known(value)
                if len != CK_UNAVAILABLE_INFORMATION && value.len() as CK_ULONG <= len =>
            {
                let mut after = before.clone();
                after[..value.len()].copy_from_slice(value);
                assert_eq!(now, Some(&*after));
                (true, value.len() as CK_ULONG)
            }
            _ => {
                assert_eq!(now.unwrap_or_default(), before);
                (false, CK_UNAVAILABLE_INFORMATION)
            }
        };
        assert_eq!(row.ulValueLen, said);
        all_filled &= filled;
    }
    assert_eq!(rv.is_ok(), all_filled);
}

enum FuzzAttribute {
    Known(Box<[u8]>),
    Sensitive,
    Unknown,
}

fn answer(input: &mut FuzzInput) -> FuzzAttribute {
    match input.byte() {
        0 => FuzzAttribute::Unknown,
        1 => FuzzAttribute::Sensitive,
        len => FuzzAttribute::Known(input.bytes(usize::from(len) - 2)),
    }
}
