//! Another module behind the stand-in (`forward` of the control file): its tokens and keys, with ordered faults in uses
//! of keys.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hsmux_token::ck::*;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, memfd_create};

use super::code;
use crate::churn::folder_of;
use crate::control::{ControlFile, TokenControl};
use crate::device::{Device, hang_while};
use crate::world::World;

/// The other module, loaded until the process ends.
static FORWARD_MODULE: OnceLock<ForwardModule> = OnceLock::new();

struct ForwardModule {
    /// Its own functions.
    real: CK_FUNCTION_LIST,
    /// The same with the functions of this file.
    list: CK_FUNCTION_LIST,
}

/// The list of functions for a stand-in with another module.
pub fn list(module: &Path) -> Result<*mut CK_FUNCTION_LIST, CK_RV> {
    let forward = if let Some(forward) = FORWARD_MODULE.get() {
        forward
    } else {
        let loaded = ForwardModule::load(module)?;
        FORWARD_MODULE.get_or_init(|| loaded)
    };
    // Nobody writes to the list, which C takes without const.
    Ok((&raw const forward.list).cast_mut())
}

impl ForwardModule {
    fn load(module: &Path) -> Result<Self, CK_RV> {
        type Get = unsafe extern "C" fn(*mut *mut CK_FUNCTION_LIST) -> CK_RV;
        let failed = |error: libloading::Error| {
            eprintln!("hsmux-standin: {}: {error}", module.display());
            CKR_ARGUMENTS_BAD
        };
        let copy = copy(module).map_err(|error| {
            eprintln!("hsmux-standin: {}: {error}", module.display());
            CKR_ARGUMENTS_BAD
        })?;
        // SAFETY: loading runs the constructors of a module that the test has chosen.
        let library = unsafe { Library::open(Some(copy), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(failed)?;
        // SAFETY: the type is that of C_GetFunctionList in the standard.
        let get = unsafe { library.get::<Get>(b"C_GetFunctionList\0") }.map_err(failed)?;
        let mut list = std::ptr::null_mut();
        // SAFETY: a place for one pointer.
        match unsafe { get(&raw mut list) } {
            CKR_OK if !list.is_null() => {}
            CKR_OK => return Err(CKR_GENERAL_ERROR),
            code => return Err(code),
        }
        // SAFETY: not null, and by the standard as long-lived as the module.
        let real = unsafe { *list };
        std::mem::forget(library);
        Ok(Self {
            list: CK_FUNCTION_LIST {
                C_GetFunctionList: Some(super::general::C_GetFunctionList),
                C_Initialize: Some(C_Initialize),
                C_Finalize: Some(C_Finalize),
                C_GetTokenInfo: Some(mechanisms::C_GetTokenInfo),
                C_GetMechanismList: Some(mechanisms::C_GetMechanismList),
                C_OpenSession: Some(C_OpenSession),
                C_Sign: Some(C_Sign),
                C_Encrypt: Some(C_Encrypt),
                C_Decrypt: Some(C_Decrypt),
                C_GenerateKey: Some(C_GenerateKey),
                C_GenerateKeyPair: Some(C_GenerateKeyPair),
                C_CreateObject: Some(C_CreateObject),
                C_CopyObject: Some(C_CopyObject),
                C_UnwrapKey: Some(C_UnwrapKey),
                C_DeriveKey: Some(C_DeriveKey),
                C_DestroyObject: Some(C_DestroyObject),
                ..real
            },
            real,
        })
    }
}

/// The path of a copy in memory, open while the process lives. A stand-in that is loaded twice has two copies behind
/// it, since two modules of a vendor would have separate memories as well.
fn copy(module: &Path) -> std::io::Result<String> {
    let mut copy = File::from(memfd_create("behind", MemfdFlags::CLOEXEC)?);
    std::io::copy(&mut File::open(module)?, &mut copy)?;
    Ok(format!("/proc/self/fd/{}", copy.into_raw_fd()))
}

/// Calls a function of the other module. Unsafe, like the function.
macro_rules! real {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match FORWARD_MODULE.get().and_then(|forward| forward.real.$name) {
            Some(function) => match function($($argument),*) {
                CKR_OK => Ok(()),
                code => Err(code),
            },
            None => Err(CKR_FUNCTION_NOT_SUPPORTED),
        }
    };
}

// After the macro, which it uses.
mod mechanisms;

unsafe extern "C" fn C_Initialize(arguments: *mut std::ffi::c_void) -> CK_RV {
    // SAFETY: the standard's promise.
    let real = || unsafe { real!(C_Initialize(arguments)) };
    code(super::general::begin().and_then(|()| {
        real().inspect_err(|_| {
            // It has just begun.
            let _ = World::end();
        })
    }))
}

unsafe extern "C" fn C_Finalize(reserved: *mut std::ffi::c_void) -> CK_RV {
    // SAFETY: the standard's promise.
    code(World::end().and_then(|()| unsafe { real!(C_Finalize(reserved)) }))
}

unsafe extern "C" fn C_OpenSession(
    slot: CK_SLOT_ID,
    flags: CK_FLAGS,
    application: *mut std::ffi::c_void,
    notify: CK_NOTIFY,
    session: *mut CK_SESSION_HANDLE,
) -> CK_RV {
    // SAFETY: the standard's promise.
    let open = unsafe { real!(C_OpenSession(slot, flags, application, notify, session)) };
    code(open.and_then(|()| {
        let device = World::with(|world| Ok(world.device(slot)))?;
        device.churn.watch(|| folder_of(&serial(slot)?));
        Ok(())
    }))
}

/// serialNumber of the token in a slot.
fn serial(slot: CK_SLOT_ID) -> Option<String> {
    let mut info = CK_TOKEN_INFO::default();
    // SAFETY: a place for one structure.
    unsafe { real!(C_GetTokenInfo(slot, &raw mut info)) }.ok()?;
    let serial = String::from_utf8_lossy(&info.serialNumber);
    Some(serial.trim().to_owned())
}

/// The slot of a session, and its device.
fn device(session: CK_SESSION_HANDLE) -> Result<(CK_SLOT_ID, Arc<Device>), CK_RV> {
    let mut info = CK_SESSION_INFO::default();
    // SAFETY: a place for one structure.
    unsafe { real!(C_GetSessionInfo(session, &raw mut info)) }?;
    World::with(|world| Ok((info.slotID, world.device(info.slotID))))
}

/// One use of a key by the device of `session`; a query for a length does not count.
fn used(
    session: CK_SESSION_HANDLE,
    asks_length: bool,
    work: impl Fn() -> Result<(), CK_RV>,
    fault: impl Fn(&TokenControl) -> CK_RV,
    spoil: impl Fn(),
) -> Result<(), CK_RV> {
    if asks_length {
        return work();
    }
    let (slot, device) = device(session)?;
    let control = ControlFile::now()?;
    let token = control.token(slot)?;
    let begun = Cell::new(false);
    let served = device.serve(slot, token, |number| {
        let fault = fault(token);
        if fault != CKR_OK {
            return Err(fault);
        }
        begun.set(true);
        work()?;
        let every = token.wrong_signature_every;
        if every > 0 && number.is_multiple_of(every) {
            spoil();
        }
        Ok(())
    });
    if !begun.get() {
        // An error ends an operation, in the other module as well.
        let _ = work();
    }
    served
}

/// The second call of each verb; all have the same arguments in the standard.
macro_rules! uses {
    ($($name:ident, $spoils:literal, $fault:expr;)*) => { $(
        unsafe extern "C" fn $name(
            session: CK_SESSION_HANDLE,
            data: *mut u8,
            data_len: CK_ULONG,
            place: *mut u8,
            len: *mut CK_ULONG,
        ) -> CK_RV {
            // SAFETY: the standard's promise.
            let work = || unsafe { real!($name(session, data, data_len, place, len)) };
            let spoil = || {
                if $spoils {
                    // SAFETY: the other module has just written a signature there.
                    unsafe { *place ^= 1 };
                }
            };
            code(used(session, place.is_null(), work, $fault, spoil))
        }
    )* };
}

uses! {
    C_Sign, true, |_| CKR_OK;
    C_Encrypt, false, |_| CKR_OK;
    C_Decrypt, false, |token| token.decrypt_error;
}

/// Calls that create objects: for this process they are no foreign changes.
macro_rules! makes {
    ($($name:ident $(by $how:ident)? $(with $template:ident $len:ident)* ($($argument:ident: $type:ty),* $(,)?);)*) => { $(
        unsafe extern "C" fn $name(session: CK_SESSION_HANDLE, $($argument: $type),*) -> CK_RV {
            let make = || {
                // SAFETY: the standard's promise.
                $(lacks(session, unsafe { (*$how).mechanism })?;)?
                makes(session)?;
                // SAFETY: the same.
                $(refuses_false(session, unsafe { templated($template, $len) })?;)*
                // SAFETY: the same.
                unsafe { real!($name(session, $($argument),*)) }
            };
            code(changed(session, make))
        }
    )* };
}

fn makes(session: CK_SESSION_HANDLE) -> Result<(), CK_RV> {
    match ControlFile::now()?.token(device(session)?.0)?.make_error {
        CKR_OK => Ok(()),
        code => Err(code),
    }
}

/// # Safety
/// A template with this number of attributes, or null and none.
unsafe fn templated<'a>(template: Template, len: CK_ULONG) -> &'a [CK_ATTRIBUTE] {
    if template.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(template, len as usize) }
}

fn refuses_false(session: CK_SESSION_HANDLE, template: &[CK_ATTRIBUTE]) -> Result<(), CK_RV> {
    let control = ControlFile::now()?;
    let kinds = &control.token(device(session)?.0)?.refuses_false;
    let is_false = |of: &CK_ATTRIBUTE| {
        // SAFETY: each value of a template has its stated length.
        of.ulValueLen == 1 && unsafe { *of.pValue.cast::<u8>() } == CK_FALSE
    };
    if template
        .iter()
        .any(|of| kinds.contains(&of.type_) && is_false(of))
    {
        Err(CKR_ATTRIBUTE_TYPE_INVALID)
    } else {
        Ok(())
    }
}

fn lacks(session: CK_SESSION_HANDLE, mechanism: CK_MECHANISM_TYPE) -> Result<(), CK_RV> {
    let control = ControlFile::now()?;
    let lacks = &control.token(device(session)?.0)?.lacks;
    let lacking = lacks.contains(&mechanism);
    if lacking {
        Err(CKR_MECHANISM_INVALID)
    } else {
        Ok(())
    }
}

/// One change of objects.
fn changed(
    session: CK_SESSION_HANDLE,
    change: impl FnOnce() -> Result<(), CK_RV>,
) -> Result<(), CK_RV> {
    let (slot, device) = device(session)?;
    hang_while(slot, |control| control.hang_in_change);
    device.churn.change(change)
}

unsafe extern "C" fn C_DestroyObject(
    session: CK_SESSION_HANDLE,
    object: CK_OBJECT_HANDLE,
) -> CK_RV {
    let destroy = || {
        let (slot, _) = device(session)?;
        let control = ControlFile::now()?;
        let lasting = &control.token(slot)?.lasting;
        if !lasting.is_empty() && label(session, object)? == lasting.as_bytes() {
            return Err(CKR_ACTION_PROHIBITED);
        }
        // SAFETY: the standard's promise.
        unsafe { real!(C_DestroyObject(session, object)) }
    };
    code(changed(session, destroy))
}

/// CKA_LABEL, up to the buffer's length.
fn label(session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE) -> Result<Vec<u8>, CK_RV> {
    let mut label = vec![0; 256];
    let mut wanted = CK_ATTRIBUTE {
        type_: CKA_LABEL,
        pValue: label.as_mut_ptr().cast(),
        ulValueLen: label.len() as CK_ULONG,
    };
    // SAFETY: a place for one attribute, which has its length.
    unsafe { real!(C_GetAttributeValue(session, object, &raw mut wanted, 1)) }?;
    label.truncate(wanted.ulValueLen as usize);
    Ok(label)
}

type Mechanism = *mut CK_MECHANISM;
type Template = *mut CK_ATTRIBUTE;
type Made = *mut CK_OBJECT_HANDLE;

makes! {
    C_GenerateKey by how with template len (how: Mechanism, template: Template, len: CK_ULONG, made: Made);
    C_GenerateKeyPair by how with public public_len with private private_len (
        how: Mechanism, public: Template, public_len: CK_ULONG, private: Template, private_len: CK_ULONG,
        made_public: Made, made_private: Made,
    );
    C_CreateObject with template len (template: Template, len: CK_ULONG, made: Made);
    C_CopyObject(object: CK_OBJECT_HANDLE, template: Template, len: CK_ULONG, made: Made);
    C_UnwrapKey with template len (
        how: Mechanism, key: CK_OBJECT_HANDLE, wrapped: *mut u8, wrapped_len: CK_ULONG,
        template: Template, len: CK_ULONG, made: Made,
    );
    C_DeriveKey(how: Mechanism, key: CK_OBJECT_HANDLE, template: Template, len: CK_ULONG, made: Made);
}
