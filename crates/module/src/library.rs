//! A vendor's module in this process: loaded and initialised once, and shared.
//! Each function is one PKCS#11 function (two if the standard splits one act), and its errors have that name.

mod keys;
mod objects;
mod observe;
mod parts;
mod registry;
mod sessions;
mod slots;

use std::path::PathBuf;

use hsmux_token::ck::{
    CK_C_INITIALIZE_ARGS, CK_FUNCTION_LIST, CK_RV, CKF_OS_LOCKING_OK,
    CKR_CRYPTOKI_ALREADY_INITIALIZED, CKR_OK,
};
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};

pub(crate) use observe::announce;
pub use observe::observe;
pub(crate) use registry::LibraryRef;

/// CK_SESSION_HANDLE.
pub(crate) type Session = u64;
/// CK_OBJECT_HANDLE.
pub(crate) type Handle = u64;
/// CK_SLOT_ID.
pub(crate) type Slot = u64;

/// A loaded and initialised module.
pub(crate) struct Library {
    path: PathBuf,
    /// A copy: the module owns the table, and `code` keeps its functions in memory.
    functions: CK_FUNCTION_LIST,
    /// False if other code in this process had initialised the module before.
    ours: bool,
    /// Held by the thread that lists the slots.
    slot_list: Mutex<()>,
    /// Keeps the code in memory; taken out only to unload it after C_Finalize.
    code: Option<libloading::os::unix::Library>,
}

/// Calls a function of the table. A null entry is CKR_FUNCTION_NOT_SUPPORTED. Unsafe, like the function.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $library.functions.$name {
            Some(function) => {
                $crate::library::announce(stringify!($name));
                $crate::library::check(stringify!($name), function($($argument),*))
            }
            None => Err(hsmux_token::Error::vendor(
                stringify!($name),
                hsmux_token::ck::CKR_FUNCTION_NOT_SUPPORTED,
            )),
        }
    };
}
use call;

fn check(call: &str, code: CK_RV) -> Result<()> {
    match code {
        CKR_OK => Ok(()),
        code => Err(Error::vendor(call, code)),
    }
}

impl Library {
    /// dlopen(3), C_GetFunctionList, C_Initialize.
    fn load(path: PathBuf) -> Result<Self> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        type Get = unsafe extern "C" fn(*mut *mut CK_FUNCTION_LIST) -> CK_RV;
        announce("dlopen");
        // SAFETY: loading runs the module's constructors. A module is the operator's choice, and
        // by default it is loaded in a process of its own.
        let code = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| {
            // dlerror(3) also names the file, or another one that it needs.
            let (own, why) = (format!("{}: ", path.display()), e.to_string());
            let why = why.strip_prefix(&own).unwrap_or(&why);
            unloadable(&path, &format!("cannot be loaded: {why}"))
        })?;
        // SAFETY: the type is that of C_GetFunctionList in the standard.
        let get = unsafe { code.get::<Get>(b"C_GetFunctionList\0") }
            .map_err(|_| unloadable(&path, "not a PKCS#11 module: it has no C_GetFunctionList"))?;
        let mut list = std::ptr::null_mut();
        // SAFETY: the argument is a place for one pointer.
        check("C_GetFunctionList", unsafe { get(&raw mut list) })?;
        if list.is_null() {
            return Err(unloadable(&path, "C_GetFunctionList gave no list"));
        }
        let mut library = Self {
            // SAFETY: not null, and by the standard a list that lives as long as the module. A 3.x
            // module puts newer functions behind these, or a version of 2.x before the same ones.
            functions: unsafe { *list },
            path,
            ours: false,
            slot_list: Mutex::default(),
            code: Some(code),
        };
        library.initialize()?;
        Ok(library)
    }

    fn initialize(&mut self) -> Result<()> {
        let mut arguments = CK_C_INITIALIZE_ARGS {
            CreateMutex: None,
            DestroyMutex: None,
            LockMutex: None,
            UnlockMutex: None,
            flags: CKF_OS_LOCKING_OK,
            pReserved: std::ptr::null_mut(),
        };
        // SAFETY: the argument lives through the call, which copies it.
        let done = unsafe { call!(self, C_Initialize((&raw mut arguments).cast())) };
        match done {
            Ok(()) => self.ours = true,
            Err(e) if e.code() == Some(CKR_CRYPTOKI_ALREADY_INITIALIZED) => {}
            Err(e) => return Err(e.at(self.path.display())),
        }
        Ok(())
    }

    /// C_Finalize and dlclose(3). If C_Finalize fails, the module stays in memory: its threads may still run.
    fn unload(mut self) {
        let ended = !self.ours || {
            // SAFETY: the argument must be null.
            unsafe { call!(self, C_Finalize(std::ptr::null_mut())) }.is_ok()
        };
        let code = self.code.take();
        if !ended {
            std::mem::forget(code);
        }
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }
}

fn unloadable(path: &std::path::Path, why: &str) -> Error {
    Error::token(Kind::Environment, format!("{}: {why}", path.display()))
}

/// The pointer of an input: PKCS#11 2.x has `CK_BYTE_PTR` also for data that it only reads.
fn input(bytes: &[u8]) -> *mut u8 {
    bytes.as_ptr().cast_mut()
}
