//! The daemon is absent, comes, goes, and comes back as another: the program goes on.

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_pkcs11::entry::*;
use hsmux_token::Attributes;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::server::{self, Server};
use crate::soft::{AES, EC};

/// Far less than a program would wait for a daemon that is there.
const AT_ONCE: Duration = Duration::from_secs(15);

/// A folder for the socket, and the library initialised on it.
struct Place {
    socket: PathBuf,
    _folder: tempfile::TempDir,
    _one_at_a_time: MutexGuard<'static, ()>,
}

fn place() -> Place {
    let turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    server::initialise(&socket).unwrap();
    Place {
        socket,
        _folder: folder,
        _one_at_a_time: turn,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        unsafe { C_Finalize(null_mut()) };
    }
}

fn sign(s: Session, key: Handle) -> Answer<Vec<u8>> {
    s.init(C_SignInit, plain(CKM_ECDSA), key)?;
    twice(s.whole(C_Sign, &[1; 32]))
}

#[test]
fn an_absent_daemon_is_an_absent_token() {
    let place = place();
    let started = Instant::now();
    let mut count = 1;
    assert_eq!(
        unsafe { C_GetSlotList(CK_FALSE, &mut 0, &mut count) },
        CKR_OK
    );
    assert_eq!(count, 1, "the slot is there");
    assert_eq!(
        unsafe { C_GetSlotList(CK_TRUE, null_mut(), &mut count) },
        CKR_OK
    );
    assert_eq!(count, 0, "the token is not");
    assert_eq!(open(0).map(|_| ()), Err(CKR_TOKEN_NOT_PRESENT));
    assert!(started.elapsed() < AT_ONCE, "at once");
    let _server = Server::start(&place.socket);
    assert!(user().one(CKO_PRIVATE_KEY, EC) > 0);
}

#[test]
fn a_daemon_that_goes_is_a_device_that_is_removed() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    sign(s, key).unwrap();
    drop(server);
    let started = Instant::now();
    assert_eq!(sign(s, key), Err(CKR_DEVICE_REMOVED));
    assert_eq!(s.find(&Attributes::default()), Err(CKR_DEVICE_REMOVED));
    assert!(started.elapsed() < AT_ONCE, "at once");
}

#[test]
fn a_daemon_that_is_back_goes_on_with_session_and_login() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    sign(s, key).unwrap();
    drop(server);
    let server = Server::start(&place.socket);
    sign(s, key).unwrap();
    assert_eq!(s.state(), Ok(CKS_RW_USER_FUNCTIONS));
    assert_eq!(s.one(CKO_PRIVATE_KEY, EC), key, "the same handle");
    drop(server);
    let _server = Server::start(&place.socket);
    assert_eq!(
        s.one(CKO_PRIVATE_KEY, EC),
        key,
        "also when a search is first"
    );
}

#[test]
fn session_objects_of_another_start_are_gone() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = user();
    let template = wanted(CKO_SECRET_KEY, "mine").with_number(CKA_KEY_TYPE, CKK_AES);
    let mut raw = raw(&template);
    let mut key = 0;
    let mut mechanism = plain(CKM_AES_KEY_GEN);
    let code = unsafe { C_GenerateKey(s.0, &mut mechanism, raw.as_mut_ptr(), 3, &mut key) };
    assert_eq!(code, CKR_OK);
    drop(server);
    let server = Server::start(&place.socket);
    let gone = hsmux_token::Error::request(hsmux_token::Kind::UnknownObject, "gone");
    server.served.soft.token.fail(gone, 1);
    s.init(C_EncryptInit, plain(CKM_AES_ECB), key).unwrap();
    assert_eq!(
        given(16, s.whole(C_Encrypt, &[1; 16])).0,
        CKR_KEY_HANDLE_INVALID
    );
    assert!(s.one(CKO_SECRET_KEY, AES) > 0);
}

#[test]
fn under_load_programs_go_on_after_a_restart() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let s = open(0).unwrap();
                let stop = &stop;
                scope.spawn(move || {
                    let mut after = 0;
                    let deadline = Instant::now() + Duration::from_secs(120);
                    while after < 50 && Instant::now() < deadline {
                        match sign(s, key) {
                            Ok(_) if stop.load(Ordering::Acquire) => after += 1,
                            Ok(_) | Err(CKR_DEVICE_REMOVED) => {}
                            Err(code) => panic!("0x{code:x}"),
                        }
                    }
                    after
                })
            })
            .collect();
        drop(server);
        let _server = Server::start(&place.socket);
        stop.store(true, Ordering::Release);
        for worker in workers {
            assert_eq!(worker.join().unwrap(), 50);
        }
    });
}

#[test]
fn the_catalogue_is_read_again_only_when_it_has_changed() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let views = || server.served.views.load(Ordering::SeqCst);
    let before = views();
    for _ in 0..5 {
        assert_eq!(s.one(CKO_PRIVATE_KEY, EC), key);
        sign(s, key).unwrap();
    }
    assert_eq!(views(), before);
    server.served.soft.token.set_objects(vec![]);
    assert_eq!(s.find(&wanted(CKO_PRIVATE_KEY, EC)), Ok(vec![]));
    assert_eq!(views(), before + 1);
}

#[test]
fn a_wrong_pin_is_no_login() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = open(0).unwrap();
    assert_eq!(s.login(b"1111"), Err(CKR_PIN_INCORRECT));
    assert_eq!(s.state(), Ok(CKS_RO_PUBLIC_SESSION));
    assert_eq!(s.find(&wanted(CKO_PRIVATE_KEY, EC)), Ok(vec![]));
    let calls = server.served.soft.calls.load(Ordering::Relaxed);
    assert_eq!(calls, 0, "no token is asked");
}

#[test]
fn a_logout_holds_also_when_the_daemon_does_not_hear_of_it() {
    let place = place();
    let server = Server::start(&place.socket);
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    drop(server);
    assert_eq!(unsafe { C_Logout(s.0) }, CKR_OK);
    assert_eq!(sign(s, key), Err(CKR_KEY_HANDLE_INVALID));
    let _server = Server::start(&place.socket);
    assert_eq!(s.find(&wanted(CKO_PRIVATE_KEY, EC)), Ok(vec![]));
    assert_eq!(s.state(), Ok(CKS_RW_PUBLIC_SESSION));
    s.login(PIN).unwrap();
    sign(s, s.one(CKO_PRIVATE_KEY, EC)).unwrap();
}
