//! OpenSSL's signature contexts of the provider, one for each signature.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

use crate::loaded::*;
use crate::openssl::*;
use crate::soft::{EC, RSA};

#[test]
fn a_signature_that_may_not_fit_is_not_asked_for() {
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    let table = place.openssl.fetch(SIGNATURE, "ECDSA", "");
    let calls = &place.server.as_ref().unwrap().served.soft.calls;
    let before = calls.load(Ordering::SeqCst);
    let (mut signature, mut len) = ([0; 71], 0);
    unsafe {
        let finish: Final = table.get(10);
        let context = table.get::<NewContext>(1)(place.openssl.provider, null());
        assert_eq!(
            table.get::<Init>(8)(context, c"SHA256".as_ptr(), key.data, null()),
            1
        );
        let room = signature.len();
        assert_eq!(
            finish(context, signature.as_mut_ptr(), &raw mut len, room),
            0
        );
        table.get::<Free>(16)(context);
    }
    assert_eq!(calls.load(Ordering::SeqCst), before);
    let said = "a signature may have 72 bytes, and there is room for 71";
    let errors = place.openssl.errors();
    assert!(
        errors.iter().any(|error| error.contains(said)),
        "{errors:?}"
    );
}

#[test]
fn a_context_that_begins_anew_pads_as_is_usual() {
    type Params = unsafe extern "C" fn(*mut c_void, *mut Param) -> c_int;
    let place = place();
    let key = place.load(&place.file(RSA), "RSA").expect("a key");
    let table = place.openssl.fetch(SIGNATURE, "RSA", "");
    unsafe {
        let (init, get, set): (Init, Params, Params) = (table.get(8), table.get(18), table.get(20));
        let context = table.get::<NewContext>(1)(place.openssl.provider, null());
        let padding = || {
            let mut text = [0; 8];
            let mut params = [param(c"pad-mode", UTF8, &mut text), END];
            assert_eq!(get(context, params.as_mut_ptr()), 1);
            let len = params[0].returned;
            String::from_utf8(text[..len].to_vec()).unwrap()
        };
        assert_eq!(init(context, c"SHA256".as_ptr(), key.data, null()), 1);
        assert_eq!(padding(), "pkcs1");
        let mut pss = *b"pss";
        let mut params = [param(c"pad-mode", UTF8, &mut pss), END];
        assert_eq!(set(context, params.as_mut_ptr()), 1);
        assert_eq!(padding(), "pss");
        let mut algorithm = [0; 128];
        let mut params = [param(c"algorithm-id", OCTETS, &mut algorithm), END];
        assert_eq!(get(context, params.as_mut_ptr()), 0, "none for PSS");
        assert_eq!(init(context, null(), null(), null()), 1);
        assert_eq!(padding(), "pkcs1");
        table.get::<Free>(16)(context);
    }
}

#[test]
fn a_key_is_copied_as_a_whole() {
    type Dup = unsafe extern "C" fn(*const c_void, c_int) -> *mut c_void;
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    let dup: Dup = unsafe { key.manager.get(44) };
    assert_eq!(unsafe { dup(key.data, 4) }, null_mut());
    let copy = Key {
        openssl: &place.openssl,
        manager: key.manager,
        data: unsafe { dup(key.data, 0x87) },
    };
    drop(key);
    assert!(copy.verifies(&copy.sign("ECDSA").expect("a signature")));
}
