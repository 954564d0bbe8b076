//! Functions of OpenSSL's core for a provider (provider-base(7)).

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use hsmux_token::{Error, Kind};

use super::abi::{Dispatch, Opaque, Param, UTF8_PTR};

/// OSSL_FUNC_CORE_*, OSSL_FUNC_BIO_*.
const GET_PARAMS: c_int = 2;
const NEW_ERROR: c_int = 5;
const VSET_ERROR: c_int = 7;
const BIO_READ: c_int = 42;
const BIO_WRITE: c_int = 43;
const BIO_GETS: c_int = 49;

type GetParams = unsafe extern "C" fn(*const Opaque, *mut Param) -> c_int;
type NewError = unsafe extern "C" fn(*const Opaque);
type VsetError = unsafe extern "C" fn(*const Opaque, u32, *const c_char, *mut c_void);
type BioRead = unsafe extern "C" fn(*mut Opaque, *mut c_void, usize, *mut usize) -> c_int;
type BioWrite = unsafe extern "C" fn(*mut Opaque, *const c_void, usize, *mut usize) -> c_int;
type BioGets = unsafe extern "C" fn(*mut Opaque, *mut c_char, c_int) -> c_int;

/// The reason of every error, which its text explains; the provider has a table of them.
pub const REASON: u32 = 1;

/// OpenSSL's core, as it has introduced itself; good for as long as the provider is loaded.
#[derive(Clone, Copy)]
pub struct OpensslCore {
    handle: *const Opaque,
    get_params: Option<GetParams>,
    new_error: Option<NewError>,
    vset_error: Option<VsetError>,
    bio_read: Option<BioRead>,
    bio_write: Option<BioWrite>,
    bio_gets: Option<BioGets>,
}

// SAFETY: OpenSSL's functions for providers may be called by any thread, with the handle that came with them.
unsafe impl Send for OpensslCore {}
// SAFETY: as above.
unsafe impl Sync for OpensslCore {}

impl OpensslCore {
    /// From what OSSL_provider_init is given.
    ///
    /// # Safety
    /// `functions` is OpenSSL's table, with its end.
    pub unsafe fn new(handle: *const Opaque, functions: *const Dispatch) -> Self {
        // SAFETY: by this function's own contract.
        let find = |id| unsafe { find(functions, id) };
        // SAFETY: function pointers of these numbers have these types (openssl/core_dispatch.h).
        unsafe {
            Self {
                handle,
                get_params: find(GET_PARAMS)
                    .map(|f| std::mem::transmute::<*const (), GetParams>(f)),
                new_error: find(NEW_ERROR).map(|f| std::mem::transmute::<*const (), NewError>(f)),
                vset_error: find(VSET_ERROR)
                    .map(|f| std::mem::transmute::<*const (), VsetError>(f)),
                bio_read: find(BIO_READ).map(|f| std::mem::transmute::<*const (), BioRead>(f)),
                bio_write: find(BIO_WRITE).map(|f| std::mem::transmute::<*const (), BioWrite>(f)),
                bio_gets: find(BIO_GETS).map(|f| std::mem::transmute::<*const (), BioGets>(f)),
            }
        }
    }

    /// A parameter of the provider's section in OpenSSL's configuration (config(5)).
    pub fn setting(&self, name: &'static CStr) -> Option<String> {
        let mut text: *const c_char = std::ptr::null();
        let place = (&raw mut text).cast();
        let mut params = [Param::new(name, UTF8_PTR, place, 0), Param::END];
        // SAFETY: the array has its end and its place, and the text that is put there is the core's and stays.
        unsafe {
            self.get_params?(self.handle, params.as_mut_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// Puts an error's sentence into OpenSSL's queue, and to standard error for who asks for it there (HSMUX_DEBUG).
    pub fn raise(&self, error: &Error) {
        crate::debug::say(error);
        self.queue(error);
    }

    /// Puts an error's sentence into OpenSSL's queue alone.
    pub fn queue(&self, error: &Error) {
        let (Some(new_error), Some(vset_error)) = (self.new_error, self.vset_error) else {
            return;
        };
        // It is a format, without anything to be filled in.
        let text = error.to_string().replace('\0', " ").replace('%', "%%");
        let Ok(text) = CString::new(text) else {
            return;
        };
        // As large as any machine's va_list, which no format of ours has read.
        let mut none = [0_u64; 8];
        // SAFETY: the text ends with a zero, and names no argument to be taken from the list.
        unsafe {
            new_error(self.handle);
            vset_error(self.handle, REASON, text.as_ptr(), none.as_mut_ptr().cast());
        }
    }

    /// The outcome, with its error in the queue.
    pub fn told<T>(&self, result: hsmux_token::Result<T>) -> Option<T> {
        result.inspect_err(|error| self.raise(error)).ok()
    }

    /// 1 for what has been done, 0 for an error, which is in the queue.
    pub fn done(&self, result: hsmux_token::Result<()>) -> c_int {
        c_int::from(self.told(result).is_some())
    }

    /// Reads into a buffer; how much there was.
    ///
    /// # Safety
    /// `bio` is the core's.
    pub unsafe fn read(&self, bio: *mut Opaque, buffer: &mut [u8]) -> usize {
        let mut got = 0;
        let Some(read) = self.bio_read else {
            return 0;
        };
        // SAFETY: the buffer is as long as is said; the rest by this function's own contract.
        let good = unsafe { read(bio, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut got) };
        if good == 1 { got.min(buffer.len()) } else { 0 }
    }

    /// Writes all of it.
    ///
    /// # Safety
    /// `bio` is the core's.
    pub unsafe fn write(&self, bio: *mut Opaque, bytes: &[u8]) -> hsmux_token::Result<()> {
        let mut put = 0;
        let written = self.bio_write.is_some_and(|write| {
            // SAFETY: the bytes are as many as is said; the rest by this function's own contract.
            unsafe { write(bio, bytes.as_ptr().cast(), bytes.len(), &raw mut put) == 1 }
        });
        if written && put == bytes.len() {
            return Ok(());
        }
        let message = format!(
            "{put} of {} bytes were written; is the disk full?",
            bytes.len()
        );
        Err(Error::request(Kind::Environment, message))
    }

    /// Reads the next line, or as much of it as there is room for; 0 at the end.
    ///
    /// # Safety
    /// `bio` is the core's.
    pub unsafe fn line(&self, bio: *mut Opaque, buffer: &mut [u8]) -> usize {
        let Some(gets) = self.bio_gets else {
            return 0;
        };
        let room = c_int::try_from(buffer.len()).unwrap_or(c_int::MAX);
        // SAFETY: the buffer is as long as is said; the rest by this function's own contract.
        let got = unsafe { gets(bio, buffer.as_mut_ptr().cast(), room) };
        usize::try_from(got).map_or(0, |got| got.min(buffer.len()))
    }
}

unsafe fn find(functions: *const Dispatch, id: c_int) -> Option<*const ()> {
    let mut at = functions;
    loop {
        // SAFETY: it is within the table, whose end has not come yet.
        let row = unsafe { &*at };
        if row.id == 0 {
            return None;
        }
        if row.id == id && !row.function.is_null() {
            return Some(row.function);
        }
        // SAFETY: this entry is not the end, so another one follows.
        at = unsafe { at.add(1) };
    }
}
