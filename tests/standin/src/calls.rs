//! The C functions: they convert pointers to slices, and results to codes.

mod forward;
mod general;
mod keys;
mod nothing;
mod objects;
mod sessions;

use hsmux_token::ck::*;

/// The code of a result.
fn code(result: Result<(), CK_RV>) -> CK_RV {
    result.err().unwrap_or(CKR_OK)
}

/// An input.
///
/// # Safety
/// `place` is null or has `len` bytes.
unsafe fn input<'a>(place: *const u8, len: CK_ULONG) -> Result<&'a [u8], CK_RV> {
    match (place.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CKR_ARGUMENTS_BAD),
        // SAFETY: the caller's promise.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(place, len as usize) }),
    }
}

/// Writes one value.
///
/// # Safety
/// `place` is null or has room for one.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), CK_RV> {
    if place.is_null() {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a list by the standard's convention: a null `place` asks for the length.
///
/// # Safety
/// `len` is null or points to a number; `place` is null or has room for this number of items.
unsafe fn put_list<T: Copy>(items: &[T], place: *mut T, len: *mut CK_ULONG) -> Result<(), CK_RV> {
    if len.is_null() {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // SAFETY: the caller's promise.
    let room = unsafe { len.replace(items.len() as CK_ULONG) } as usize;
    if place.is_null() {
        return Ok(());
    }
    if room < items.len() {
        return Err(CKR_BUFFER_TOO_SMALL);
    }
    // SAFETY: the caller's promise; the room was checked.
    unsafe { place.copy_from_nonoverlapping(items.as_ptr(), items.len()) };
    Ok(())
}

/// A text, padded with blanks to the length of its field.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}
