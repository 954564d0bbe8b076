//! Pointers become slices and places to write to; null ones become CKR_ARGUMENTS_BAD.

use hsmux_token::ck::{CK_ULONG, CKR_ARGUMENTS_BAD, CKR_BUFFER_TOO_SMALL};

use crate::rv::{Result, Rv};

/// `pData` and `ulDataLen`: null is good for no bytes.
///
/// # Safety
/// `data` is null or readable for `len` items, until the call returns.
pub unsafe fn slice<'a, T>(data: *const T, len: CK_ULONG) -> Result<&'a [T]> {
    let len = usize::try_from(len).map_err(|_| Rv(CKR_ARGUMENTS_BAD))?;
    let size = len.checked_mul(size_of::<T>());
    if size.is_none_or(|size| size > isize::MAX as usize)
        || (data.is_null() && len > 0)
        || !data.is_aligned()
    {
        return Err(Rv(CKR_ARGUMENTS_BAD));
    }
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, of a size that can be, and valid by this function's own contract.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Puts one value where the application wants it.
///
/// # Safety
/// `place` is null or writable.
pub unsafe fn give<T>(place: *mut T, value: T) -> Result {
    // SAFETY: `place` is writable by this function's own contract.
    unsafe { check(place)?.write(value) };
    Ok(())
}

/// A pointer that has to be there, and has to be one to such a thing.
pub fn check<T>(place: *mut T) -> Result<*mut T> {
    if place.is_null() || !place.is_aligned() {
        return Err(Rv(CKR_ARGUMENTS_BAD));
    }
    Ok(place)
}

/// The place for an answer of varying length: `pData` and `pulDataLen` (PKCS#11 3.0, section 5.2).
///
/// It keeps a pointer, not a slice: the place may be that of the input.
pub struct Output<'a, T = u8> {
    data: *mut T,
    len: &'a mut CK_ULONG,
}

impl<T: Copy> Output<'_, T> {
    /// `len` has to be there; without `data` this is a length query.
    ///
    /// # Safety
    /// `len` is null or valid; `data` is null or writable for `*len` items; both until the call returns.
    pub unsafe fn new(data: *mut T, len: *mut CK_ULONG) -> Result<Self> {
        // SAFETY: not null, and valid by this function's own contract.
        let len = unsafe { &mut *check(len)? };
        Ok(Self { data, len })
    }

    /// True if only the length is asked for.
    pub fn is_query(&self) -> bool {
        self.data.is_null()
    }

    /// How many items have room; none in a query.
    pub fn room(&self) -> usize {
        if self.is_query() {
            0
        } else {
            usize::try_from(*self.len).unwrap_or(usize::MAX)
        }
    }

    /// Says the length in place of the answer: all is well in a query, and too small otherwise.
    pub fn put_length(&mut self, len: usize) -> Result {
        *self.len = len as CK_ULONG;
        if self.is_query() {
            Ok(())
        } else {
            Err(Rv(CKR_BUFFER_TOO_SMALL))
        }
    }

    /// Gives the answer if it has room, and its length in any case.
    pub fn put(&mut self, answer: &[T]) -> Result {
        if self.is_query() || answer.len() > self.room() {
            return self.put_length(answer.len());
        }
        *self.len = answer.len() as CK_ULONG;
        // SAFETY: `data` has room for `answer` by the contract of `new`; they may overlap.
        unsafe { std::ptr::copy(answer.as_ptr(), self.data, answer.len()) };
        Ok(())
    }
}

/// Fills a fixed field of an information structure with blanks after the text.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    // A character that does not fit whole is left out.
    let mut end = text.len().min(N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
    field
}
