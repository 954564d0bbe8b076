//! Octets that OpenSSL gives, and buffers for those that it gets.

use std::ffi::c_int;

use hsmux_token::{Error, Kind, Result};

use super::core::OpensslCore;

/// The bytes behind a pointer and a length.
///
/// # Safety
///
/// The pointer is null, or valid for the length and for as long as the slice is used.
pub unsafe fn slice<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Error::request(
            Kind::Invalid,
            format!("{len} bytes of data, and a null pointer to them"),
        ));
    }
    // SAFETY: not null; the rest by this function's own contract.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// The place for an answer.
pub struct OutputBuffer {
    /// Null where only the answer's length is asked for.
    pub data: *mut u8,
    /// For the answer's length.
    pub len: *mut usize,
    /// The room there, in bytes.
    pub room: usize,
}

impl OutputBuffer {
    /// Puts the answer there, or the most that it may have where that is asked for.
    ///
    /// # Safety
    /// Both pointers are null or can be written to, the data for as much as there is room.
    pub unsafe fn fill(
        self,
        core: &OpensslCore,
        most: usize,
        answer: impl FnOnce(usize) -> Result<Vec<u8>>,
    ) -> c_int {
        let (answer, len) = if self.data.is_null() {
            (None, most)
        } else {
            let Some(answer) = core.told(answer(self.room).and_then(|answer| self.fits(answer)))
            else {
                return 0;
            };
            let len = answer.len();
            (Some(answer), len)
        };
        // SAFETY: by this function's own contract; the answer is no longer than the room.
        unsafe {
            if let Some(place) = self.len.as_mut() {
                *place = len;
            }
            if let Some(answer) = answer {
                self.data.copy_from_nonoverlapping(answer.as_ptr(), len);
            }
        }
        1
    }

    /// A token may give more than it should.
    fn fits(&self, answer: Vec<u8>) -> Result<Vec<u8>> {
        if answer.len() <= self.room {
            return Ok(answer);
        }
        let message = format!(
            "{} bytes, and there is room for {}",
            answer.len(),
            self.room
        );
        Err(Error::request(Kind::Invalid, message))
    }
}
