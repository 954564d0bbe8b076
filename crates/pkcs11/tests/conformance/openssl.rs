//! OpenSSL's side of a provider, as far as a test needs it: a core, and calls by the numbers of its tables.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use hsmux_pkcs11::provider::entry::OSSL_provider_init;

/// OSSL_OP_*.
pub const KEYMGMT: c_int = 10;
pub const SIGNATURE: c_int = 12;
pub const DECODER: c_int = 21;

/// OSSL_PARAM_*.
pub const INTEGER: c_uint = 1;
pub const UNSIGNED: c_uint = 2;
pub const UTF8: c_uint = 4;
pub const OCTETS: c_uint = 5;
const UTF8_PTR: c_uint = 6;

/// OSSL_PARAM.
#[repr(C)]
pub struct Param {
    pub key: *const c_char,
    pub kind: c_uint,
    pub data: *mut c_void,
    pub size: usize,
    pub returned: usize,
}

pub fn param(key: &'static CStr, kind: c_uint, data: &mut [u8]) -> Param {
    Param {
        key: key.as_ptr(),
        kind,
        data: data.as_mut_ptr().cast(),
        size: data.len(),
        returned: usize::MAX,
    }
}

pub const END: Param = Param {
    key: null(),
    kind: 0,
    data: null_mut(),
    size: 0,
    returned: 0,
};

/// OSSL_DISPATCH.
#[repr(C)]
struct Dispatch {
    id: c_int,
    function: *const (),
}

/// OSSL_ALGORITHM.
#[repr(C)]
struct Algorithm {
    names: *const c_char,
    properties: *const c_char,
    functions: *const Dispatch,
    description: *const c_char,
}

/// The functions of one algorithm.
#[derive(Clone, Copy)]
pub struct Table(*const Dispatch);

impl Table {
    /// The function of a number, which has to be there.
    ///
    /// # Safety
    /// `F` is its type.
    pub unsafe fn get<F: Copy>(self, id: c_int) -> F {
        let mut at = self.0;
        unsafe {
            while (*at).id != id {
                assert!((*at).id != 0, "no function {id}");
                at = at.add(1);
            }
            std::mem::transmute_copy(&(*at).function)
        }
    }
}

/// The core, with the provider that it has loaded.
pub struct OpenSsl {
    core: Box<Core>,
    pub provider: *mut c_void,
    functions: Table,
}

struct Core {
    socket: CString,
    errors: Mutex<Vec<String>>,
}

/// The input of a decoder.
pub struct Bio<'a>(pub &'a [u8]);

impl OpenSsl {
    /// Loads the provider with `socket = ...` in its section.
    pub fn load(socket: &Path) -> Self {
        let core = Box::new(Core {
            socket: CString::new(socket.to_str().unwrap()).unwrap(),
            errors: Mutex::default(),
        });
        let functions = [
            (2, get_params as *const ()),
            (5, new_error as *const ()),
            (7, vset_error as *const ()),
            (42, bio_read as *const ()),
            (49, bio_gets as *const ()),
            (0, null()),
        ]
        .map(|(id, function)| Dispatch { id, function });
        let (mut table, mut provider) = (null(), null_mut());
        let handle: *const Core = &raw const *core;
        let loaded = unsafe {
            OSSL_provider_init(
                handle.cast(),
                functions.as_ptr().cast(),
                &raw mut table,
                &raw mut provider,
            )
        };
        assert_eq!(loaded, 1);
        Self {
            core,
            provider,
            functions: Table(table.cast()),
        }
    }

    /// The functions of the algorithm with this name among its own, and with these properties.
    pub fn fetch(&self, operation: c_int, name: &str, properties: &str) -> Table {
        type Query = unsafe extern "C" fn(*mut c_void, c_int, *mut c_int) -> *const Algorithm;
        let mut no_cache = 1;
        unsafe {
            let query: Query = self.functions.get(1027);
            let mut at = query(self.provider, operation, &raw mut no_cache);
            assert_eq!(no_cache, 0);
            while !(*at).names.is_null() {
                let text = |text| CStr::from_ptr(text).to_str().unwrap();
                let (names, own) = (text((*at).names), text((*at).properties));
                assert!(own.starts_with("provider=hsmux"), "{own}");
                if names.split(':').any(|own| own == name) && own.contains(properties) {
                    return Table((*at).functions);
                }
                at = at.add(1);
            }
        }
        panic!("no {name} with {properties}");
    }

    /// Panics unless this was put into the queue of errors since the last time.
    #[track_caller]
    pub fn said(&self, why: &str) {
        let errors = self.errors();
        assert!(errors.iter().any(|error| error.contains(why)), "{errors:?}");
    }

    /// The new entries in the queue of errors.
    pub fn errors(&self) -> Vec<String> {
        std::mem::take(&mut self.core.errors.lock().unwrap())
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        unsafe {
            let teardown: unsafe extern "C" fn(*mut c_void) = self.functions.get(1024);
            teardown(self.provider);
        }
    }
}

unsafe extern "C" fn get_params(core: *const Core, params: *mut Param) -> c_int {
    unsafe {
        assert_eq!((*params).kind, UTF8_PTR);
        if CStr::from_ptr((*params).key) == c"socket" {
            *(*params).data.cast() = (*core).socket.as_ptr();
        }
        assert!((*params.add(1)).key.is_null());
    }
    1
}

unsafe extern "C" fn new_error(_core: *const Core) {}

unsafe extern "C" fn vset_error(
    core: *const Core,
    _reason: u32,
    format: *const c_char,
    _arguments: *mut c_void,
) {
    unsafe {
        let format = CStr::from_ptr(format).to_str().unwrap();
        let plain = format.replace("%%", "");
        assert!(!plain.contains('%'), "an argument is asked for: {format}");
        (*core).errors.lock().unwrap().push(format.to_owned());
    }
}

unsafe extern "C" fn bio_read(
    bio: *mut Bio<'_>,
    data: *mut u8,
    len: usize,
    read: *mut usize,
) -> c_int {
    unsafe {
        let left = &mut (*bio).0;
        *read = len.min(left.len());
        data.copy_from_nonoverlapping(left.as_ptr(), *read);
        *left = &left[*read..];
        c_int::from(*read > 0)
    }
}

unsafe extern "C" fn bio_gets(bio: *mut Bio<'_>, data: *mut u8, size: c_int) -> c_int {
    unsafe {
        let left = &mut (*bio).0;
        let line = left.iter().position(|byte| *byte == b'\n');
        let len = line
            .map_or(left.len(), |at| at + 1)
            .min(usize::try_from(size).unwrap() - 1);
        data.copy_from_nonoverlapping(left.as_ptr(), len);
        *data.add(len) = 0;
        *left = &left[len..];
        c_int::try_from(len).unwrap()
    }
}
