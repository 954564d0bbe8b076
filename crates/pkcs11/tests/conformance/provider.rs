//! The provider of OpenSSL 3: from a file's reference to a signature, as OpenSSL goes.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering;

use hsmux_software::PublicKey;
use hsmux_token::Attributes;
use hsmux_token::ck::*;
use hsmux_token::fake::write_secret;

use crate::calls::PIN;
use crate::forks::{check, in_child};
use crate::loaded::*;
use crate::openssl::*;
use crate::server::Server;
use crate::soft::{EACH_TIME, EC, P256, RSA};

#[test]
fn a_reference_is_a_key_that_signs() {
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    assert_eq!(key.number(c"bits"), 256);
    assert_eq!(key.number(c"security-bits"), 128);
    assert_eq!(key.number(c"max-size"), 72);
    assert_eq!(key.parameter(c"group", UTF8), b"prime256v1");
    let signature = key.sign("ECDSA").expect("a signature");
    assert!(key.verifies(&signature), "{signature:02x?}");
    assert_eq!(place.openssl.errors(), [""; 0]);
}

#[test]
fn a_reference_is_of_one_family() {
    let place = place();
    assert!(place.load(&place.file(EC), "RSA").is_none());
    assert!(place.load(&place.file(RSA), "EC").is_none());
    let key = place.load(&place.file(RSA), "RSA").expect("a key");
    assert_eq!(key.number(c"bits"), 1024);
    assert_eq!(key.number(c"max-size"), 128);
    assert_eq!(key.sign("RSA").expect("a signature").len(), 128);
}

#[test]
fn what_names_no_key_of_the_pool_is_none() {
    let place = place();
    let each_time = EACH_TIME.replace(' ', "%20");
    assert!(place.load(&place.file("absent"), "EC").is_none());
    assert!(place.load(&place.file(&each_time), "EC").is_none());
    let another = file("pkcs11:token=another;object=ec");
    assert!(place.load(&another, "EC").is_none());
    assert!(
        place
            .load("-----BEGIN PKCS#11 PROVIDER URI-----\n", "EC")
            .is_none()
    );
    let errors = place.openssl.errors();
    for why in ["no such private key", "asks for a PIN", "another token"] {
        let said = errors.iter().filter(|error| error.contains(why));
        assert_eq!(said.count(), 1, "{why}: {errors:?}");
    }
    assert!(place.load(&file("pkcs11:object=ec"), "EC").is_some());
}

#[test]
fn private_keys_are_shown_after_the_login_that_some_reference_has_a_pin_for() {
    let place = place();
    let without = file("pkcs11:object=ec");
    assert!(place.load(&without, "EC").is_none());
    write_secret(&place.folder.path().join("pin"), "wrong");
    for family in ["RSA", "EC"] {
        assert!(place.load(&place.file(EC), family).is_none());
    }
    assert!(place.load(&without, "EC").is_none());
    let served = &place.server.as_ref().unwrap().served;
    assert_eq!(served.wrong_pins.load(Ordering::SeqCst), 1, "shown once");
    write_secret(&place.folder.path().join("pin"), PIN);
    assert!(place.load(&place.file(RSA), "RSA").is_some());
    let key = place.load(&without, "EC").expect("a key");
    in_child(|| check(key.sign("ECDSA").is_some(), line!()));
}

#[test]
fn a_daemon_that_comes_back_is_logged_in_to_again() {
    let mut place = place();
    let file = place.file(EC);
    let server = place.server.take();
    let key = place.load(&file, "EC").expect("a key");
    assert!(key.sign("ECDSA").is_some());
    drop(server);
    assert!(key.sign("ECDSA").is_none());
    let errors = place.openssl.errors();
    assert!(
        errors
            .iter()
            .any(|error| error.contains("is the daemon running?")),
        "{errors:?}"
    );
    let _server = Server::start(&place.socket);
    assert!(key.verifies(&key.sign("ECDSA").expect("a signature")));
}

#[test]
fn a_forks_child_signs_by_itself() {
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    assert!(key.sign("ECDSA").is_some());
    for _ in 0..3 {
        in_child(|| {
            for _ in 0..2 {
                let signature = key.sign("ECDSA").ok_or(line!())?;
                check(key.verifies(&signature), line!())?;
            }
            check(place.load(&place.file(EC), "EC").is_some(), line!())
        });
    }
    // A child whose threads are all the first.
    in_child(|| {
        let key = key.data as usize;
        let sign = || {
            let key = std::mem::ManuallyDrop::new(Key {
                openssl: &place.openssl,
                manager: place.openssl.fetch(KEYMGMT, "EC", ""),
                data: key as *mut c_void,
            });
            key.sign("ECDSA")
                .is_some_and(|signature| key.verifies(&signature))
        };
        let sign = Shared(&sign);
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(move || sign.call())).collect();
            threads
                .into_iter()
                .all(|thread| thread.join().unwrap_or(false))
        });
        check(all, line!())
    });
    let signature = key.sign("ECDSA").expect("the parent goes on");
    assert!(key.verifies(&signature));
}

/// The calls of threads at the same time, as OpenSSL makes them with one key.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a dyn Fn() -> bool);

// SAFETY: keys and contexts of providers are used by any thread.
unsafe impl Send for Shared<'_> {}

impl Shared<'_> {
    fn call(self) -> bool {
        (self.0)()
    }
}

type Import = unsafe extern "C" fn(*mut c_void, c_int, *const Param) -> c_int;

/// X509_check_private_key: the certificate's key is brought to our side, and compared.
#[test]
fn a_public_key_is_imported_to_be_compared() {
    type Match = unsafe extern "C" fn(*const c_void, *const c_void, c_int) -> c_int;
    type Has = unsafe extern "C" fn(*const c_void, c_int) -> c_int;
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    let mut group = *b"prime256v1";
    let other_key = p256::ecdsa::SigningKey::from_slice(&[9; 32]).unwrap();
    let other_point = other_key
        .verifying_key()
        .to_sec1_point(false)
        .as_bytes()
        .to_vec();
    for (mut point, same) in [(key.parameter(c"pub", OCTETS), 1), (other_point, 0)] {
        let params = [
            param(c"group", UTF8, &mut group),
            param(c"pub", OCTETS, &mut point),
            END,
        ];
        unsafe {
            let public = Key {
                openssl: &place.openssl,
                manager: key.manager,
                data: key.manager.get::<New>(1)(place.openssl.provider),
            };
            assert_eq!(key.manager.get::<Has>(21)(public.data, 2), 0, "nothing yet");
            let imported = key.manager.get::<Import>(40)(public.data, 2, params.as_ptr());
            assert_eq!(imported, 1);
            let matches: Match = key.manager.get(23);
            assert_eq!(matches(key.data, public.data, 2), same);
            assert_eq!(matches(key.data, public.data, 4), 1, "one curve");
            assert_eq!(
                key.manager.get::<Has>(21)(public.data, 1),
                0,
                "no private key"
            );
            assert_eq!(key.manager.get::<Has>(21)(key.data, 3), 1);
        }
    }
}

/// OpenSSL signs with it in its own provider.
#[test]
fn a_private_key_of_another_is_not_imported() {
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    let mut point = key.parameter(c"pub", OCTETS);
    let (mut group, mut number) = (*b"prime256v1", [7; 32]);
    let params = [
        param(c"group", UTF8, &mut group),
        param(c"pub", OCTETS, &mut point),
        param(c"priv", UNSIGNED, &mut number),
        END,
    ];
    unsafe {
        let whole = key.manager.get::<New>(1)(place.openssl.provider);
        assert_eq!(
            key.manager.get::<Import>(40)(whole, 0x87, params.as_ptr()),
            0
        );
        key.manager.get::<Free>(10)(whole);
    }
    place.openssl.said("that provider uses it");
}

/// A program learns the reason of a failure, also from functions that `openssl` never calls without success.
#[test]
fn every_refusal_has_a_reason() {
    type Get = unsafe extern "C" fn(*mut c_void, *mut Param) -> c_int;
    type Dup = unsafe extern "C" fn(*const c_void, c_int) -> *mut c_void;
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    let get: Get = unsafe { key.manager.get(11) };
    let mut short = [0; 2];
    let mut params = [param(c"group", UTF8, &mut short), END];
    assert_eq!(unsafe { get(key.data, params.as_mut_ptr()) }, 0);
    place.openssl.said("\"group\" does not go into 2 bytes");
    let dup: Dup = unsafe { key.manager.get(44) };
    assert!(unsafe { dup(key.data, 4) }.is_null());
    place.openssl.said("copied as a whole");
    let empty = Key {
        openssl: &place.openssl,
        manager: key.manager,
        data: unsafe { key.manager.get::<New>(1)(place.openssl.provider) },
    };
    assert_eq!(unsafe { get(empty.data, params.as_mut_ptr()) }, 0);
    place.openssl.said("no key has been loaded");
    let mut group = *b"prime256v1";
    let half = [param(c"group", UTF8, &mut group), END];
    let import: Import = unsafe { key.manager.get(40) };
    assert_eq!(unsafe { import(empty.data, 2, half.as_ptr()) }, 0);
    place.openssl.said("RSA has n and e");
}

/// A copy without the private half would be signed with.
#[test]
fn a_private_key_is_exported_as_its_public_half_alone() {
    type Export = unsafe extern "C" fn(*mut c_void, c_int, Take, *mut c_void) -> c_int;
    unsafe extern "C" fn take(params: *const Param, point: *mut c_void) -> c_int {
        unsafe {
            let (group, key) = (&*params, &*params.add(1));
            assert_eq!(CStr::from_ptr(group.key), c"group");
            assert_eq!(CStr::from_ptr(key.key), c"pub");
            let bytes = std::slice::from_raw_parts(key.data.cast::<u8>(), key.size);
            *point.cast::<Vec<u8>>() = bytes.to_vec();
        }
        1
    }
    let place = place();
    let key = place.load(&place.file(EC), "EC").expect("a key");
    let mut point = Vec::<u8>::new();
    let argument = (&raw mut point).cast();
    unsafe {
        let export: Export = key.manager.get(42);
        assert_eq!(export(key.data, 0x87, take, argument), 0);
        place.openssl.said("the private key stays in the pool");
        assert_eq!(export(key.data, 0x86, take, argument), 1);
    }
    let attributes = Attributes::default()
        .with_number(CKA_KEY_TYPE, CKK_EC)
        .with(CKA_EC_PARAMS, P256.to_vec())
        .with(CKA_EC_POINT, point);
    assert!(PublicKey::from_attributes(&attributes).is_ok());
}

#[test]
fn a_daemon_that_is_away_is_no_key() {
    let mut place = place();
    place.server = None;
    assert!(place.load(&place.file(EC), "EC").is_none());
}
