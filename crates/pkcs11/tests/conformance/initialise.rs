//! C_Initialize, C_Finalize, the lists of functions, and the one slot.

use std::ffi::c_void;
use std::ptr::null_mut;

use hsmux_pkcs11::entry::*;
use hsmux_token::ck::*;

use crate::calls::*;

/// The result of C_Initialize for arguments; after a success it is finalised again.
fn initialise_with(arguments: CK_C_INITIALIZE_ARGS) -> CK_RV {
    let _turn = alone();
    let mut arguments = arguments;
    let code = unsafe { C_Initialize((&raw mut arguments).cast()) };
    if code == CKR_OK {
        assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
    }
    code
}

unsafe extern "C" fn create(_: *mut *mut c_void) -> CK_RV {
    CKR_GENERAL_ERROR
}

unsafe extern "C" fn other(_: *mut c_void) -> CK_RV {
    CKR_GENERAL_ERROR
}

fn mutexes(flags: CK_FLAGS) -> CK_C_INITIALIZE_ARGS {
    CK_C_INITIALIZE_ARGS {
        CreateMutex: Some(create),
        DestroyMutex: Some(other),
        LockMutex: Some(other),
        UnlockMutex: Some(other),
        flags,
        pReserved: null_mut(),
    }
}

#[test]
fn arguments_are_looked_at() {
    // A socket without a listener is no reason to refuse.
    let folder = tempfile::tempdir().unwrap();
    unsafe { std::env::set_var("HSMUX_SOCKET", folder.path().join("none")) };
    let none = CK_C_INITIALIZE_ARGS::default();
    assert_eq!(initialise_with(none), CKR_OK);
    assert_eq!(initialise_with(mutexes(CKF_OS_LOCKING_OK)), CKR_OK);
    assert_eq!(initialise_with(mutexes(0)), CKR_CANT_LOCK);
    let some = CK_C_INITIALIZE_ARGS {
        LockMutex: None,
        ..mutexes(CKF_OS_LOCKING_OK)
    };
    assert_eq!(initialise_with(some), CKR_ARGUMENTS_BAD);
    let reserved = CK_C_INITIALIZE_ARGS {
        pReserved: std::ptr::dangling_mut(),
        ..none
    };
    assert_eq!(initialise_with(reserved), CKR_ARGUMENTS_BAD);
    let threads = CK_C_INITIALIZE_ARGS {
        flags: CKF_LIBRARY_CANT_CREATE_OS_THREADS,
        ..none
    };
    assert_eq!(initialise_with(threads), CKR_OK);
}

#[test]
fn it_is_initialised_once_and_finalised_once() {
    let library = library();
    assert_eq!(
        initialise(&library.soft),
        Err(CKR_CRYPTOKI_ALREADY_INITIALIZED)
    );
    let s = open(0).unwrap();
    assert_eq!(
        unsafe { C_Finalize(std::ptr::dangling_mut()) },
        CKR_ARGUMENTS_BAD
    );
    assert_eq!(unsafe { C_Finalize(null_mut()) }, CKR_OK);
    assert_eq!(
        unsafe { C_Finalize(null_mut()) },
        CKR_CRYPTOKI_NOT_INITIALIZED
    );
    assert_eq!(s.state(), Err(CKR_CRYPTOKI_NOT_INITIALIZED));
    let mut info = CK_INFO::default();
    assert_eq!(
        unsafe { C_GetInfo(&mut info) },
        CKR_CRYPTOKI_NOT_INITIALIZED
    );
    initialise(&library.soft).unwrap();
    assert_eq!(
        s.state(),
        Err(CKR_SESSION_HANDLE_INVALID),
        "of the life before"
    );
}

#[test]
fn function_lists_are_whole() {
    let mut list = null_mut();
    assert_eq!(unsafe { C_GetFunctionList(&mut list) }, CKR_OK);
    let list = unsafe { &*list };
    assert_eq!((list.version.major, list.version.minor), (2, 40));
    assert_all_there(list);
    let mut count = 0;
    assert_eq!(
        unsafe { C_GetInterfaceList(null_mut(), &mut count) },
        CKR_OK
    );
    assert_eq!(count, 2);
    let mut newest = null_mut();
    let code = unsafe { C_GetInterface(null_mut(), null_mut(), &mut newest, 0) };
    assert_eq!(code, CKR_OK);
    let list = unsafe { &*(*newest).pFunctionList.cast::<CK_FUNCTION_LIST_3_0>() };
    assert_eq!((list.version.major, list.version.minor), (3, 0));
    assert_all_there(list);
}

/// Every word after the version is a pointer to a function, and they are all different.
fn assert_all_there<T>(list: &T) {
    let words = size_of::<T>() / size_of::<usize>();
    let words = unsafe { std::slice::from_raw_parts((&raw const *list).cast::<usize>(), words) };
    let mut functions = words[1..].to_vec();
    functions.sort_unstable();
    functions.dedup();
    assert!(functions[0] != 0);
    assert!(
        functions.len() > words.len() / 2,
        "not one function for all"
    );
}

#[test]
fn interfaces_are_found_by_name_version_and_flags() {
    let find = |name: &std::ffi::CStr, version: Option<(u8, u8)>, flags| -> Answer<(u8, u8)> {
        let mut version = version.map(|(major, minor)| CK_VERSION { major, minor });
        let version = version
            .as_mut()
            .map_or(null_mut(), |version| &raw mut *version);
        let mut found = null_mut();
        let name = name.as_ptr().cast_mut().cast();
        ok(unsafe { C_GetInterface(name, version, &mut found, flags) })?;
        let own = unsafe { &*(*found).pFunctionList.cast::<CK_VERSION>() };
        Ok((own.major, own.minor))
    };
    assert_eq!(find(c"PKCS 11", None, 0), Ok((3, 0)));
    assert_eq!(find(c"PKCS 11", Some((2, 40)), 0), Ok((2, 40)));
    assert_eq!(find(c"PKCS 11", Some((3, 2)), 0), Err(CKR_ARGUMENTS_BAD));
    assert_eq!(find(c"Vendor", None, 0), Err(CKR_ARGUMENTS_BAD));
    assert_eq!(
        find(c"PKCS 11", None, CKF_INTERFACE_FORK_SAFE),
        Err(CKR_ARGUMENTS_BAD)
    );
}

#[test]
fn versions_are_those_of_the_interface() {
    let _library = library();
    let mut info = CK_INFO::default();
    assert_eq!(unsafe { C_GetInfo(&mut info) }, CKR_OK);
    assert_eq!(
        (info.cryptokiVersion.major, info.cryptokiVersion.minor),
        (2, 40)
    );
    let mut newest = null_mut();
    unsafe { C_GetInterface(null_mut(), null_mut(), &mut newest, 0) };
    let list = unsafe { &*(*newest).pFunctionList.cast::<CK_FUNCTION_LIST_3_0>() };
    assert_eq!(unsafe { list.C_GetInfo.unwrap()(&mut info) }, CKR_OK);
    assert_eq!(
        (info.cryptokiVersion.major, info.cryptokiVersion.minor),
        (3, 0)
    );
}

#[test]
fn the_slot_shows_whether_the_token_is_there() {
    let library = library();
    let slots = |present| -> Answer<Vec<CK_SLOT_ID>> {
        let mut slots = [0; 4];
        let mut count = 4;
        ok(unsafe { C_GetSlotList(present, slots.as_mut_ptr(), &mut count) })?;
        Ok(slots[..count as usize].to_vec())
    };
    assert_eq!(slots(CK_TRUE), Ok(vec![SLOT]));
    let mut info = CK_TOKEN_INFO::default();
    assert_eq!(unsafe { C_GetTokenInfo(SLOT, &mut info) }, CKR_OK);
    assert_eq!(&info.label, b"soft                            ");
    assert_ne!(info.flags & CKF_LOGIN_REQUIRED, 0);
    assert_eq!(
        unsafe { C_GetTokenInfo(SLOT + 1, &mut info) },
        CKR_SLOT_ID_INVALID
    );
    assert_eq!(
        unsafe { C_InitToken(SLOT, null_mut(), 0, null_mut()) },
        CKR_FUNCTION_NOT_SUPPORTED
    );
    library.soft.token.lose("gone");
    assert_eq!(slots(CK_TRUE), Ok(vec![]));
    assert_eq!(slots(CK_FALSE), Ok(vec![SLOT]), "the slot stays");
    assert_eq!(
        unsafe { C_GetTokenInfo(SLOT, &mut info) },
        CKR_TOKEN_NOT_PRESENT
    );
    assert_eq!(open(0).map(|_| ()), Err(CKR_TOKEN_NOT_PRESENT));
    let mut info = CK_SLOT_INFO::default();
    assert_eq!(unsafe { C_GetSlotInfo(SLOT, &mut info) }, CKR_OK);
    assert_eq!(info.flags & CKF_TOKEN_PRESENT, 0);
    assert_ne!(info.flags & CKF_REMOVABLE_DEVICE, 0);
}

/// Sessions outlive a daemon that is away for a while: who hears that the token is gone would close them.
#[test]
fn the_token_is_in_its_slot_while_sessions_are_open() {
    let library = library();
    open(0).unwrap();
    library.soft.token.lose("gone");
    let mut info = CK_SLOT_INFO::default();
    assert_eq!(unsafe { C_GetSlotInfo(SLOT, &mut info) }, CKR_OK);
    assert_ne!(info.flags & CKF_TOKEN_PRESENT, 0);
}

#[test]
fn mechanisms_are_those_of_the_token_and_of_the_host() {
    let _library = library();
    let info = |kind| -> Answer<CK_FLAGS> {
        let mut info = CK_MECHANISM_INFO::default();
        ok(unsafe { C_GetMechanismInfo(SLOT, kind, &mut info) })?;
        Ok(info.flags)
    };
    let sign = CKF_SIGN | CKF_VERIFY;
    assert_eq!(info(CKM_ECDSA), Ok(sign | CKF_HW));
    assert_eq!(
        info(CKM_ECDSA_SHA384),
        Ok(sign | CKF_HW),
        "hashed on the host"
    );
    assert_eq!(info(CKM_SHA512), Ok(CKF_DIGEST), "on the host");
    assert_eq!(
        info(CKM_RSA_PKCS_PSS),
        Err(CKR_MECHANISM_INVALID),
        "the token has it not"
    );
    assert_eq!(info(CKM_DSA), Err(CKR_MECHANISM_INVALID));
    let mut count = 0;
    assert_eq!(
        unsafe { C_GetMechanismList(SLOT, null_mut(), &mut count) },
        CKR_OK
    );
    let mut list = vec![0; count as usize];
    let mut less = count - 1;
    let code = unsafe { C_GetMechanismList(SLOT, list.as_mut_ptr(), &mut less) };
    assert_eq!((code, less), (CKR_BUFFER_TOO_SMALL, count));
    assert_eq!(
        unsafe { C_GetMechanismList(SLOT, list.as_mut_ptr(), &mut count) },
        CKR_OK
    );
    assert!(list.is_sorted() && list.contains(&CKM_SHA512) && !list.contains(&CKM_DSA));
    for kind in list {
        assert_ne!(info(kind), Ok(0), "what is listed is good for something");
    }
}

#[test]
fn nobody_is_told_of_slot_events() {
    let _library = library();
    let wait = |flags| unsafe { C_WaitForSlotEvent(flags, &mut 0, null_mut()) };
    assert_eq!(wait(CKF_DONT_BLOCK), CKR_NO_EVENT);
    assert_eq!(wait(0), CKR_FUNCTION_NOT_SUPPORTED);
}
