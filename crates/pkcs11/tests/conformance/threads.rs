//! Many threads: each with its own session, and some that share one.

use hsmux_pkcs11::entry::*;
use hsmux_token::Mechanism;
use hsmux_token::ck::*;

use crate::calls::*;
use crate::soft::{EC, public_key};

#[test]
fn threads_sign_side_by_side() {
    let library = library();
    let s = user();
    let key = s.one(CKO_PRIVATE_KEY, EC);
    let before = library.calls();
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            scope.spawn(move || {
                let s = open(0).unwrap();
                for _ in 0..20 {
                    s.init(C_SignInit, plain(CKM_ECDSA_SHA256), key).unwrap();
                    let signature = twice(s.whole(C_Sign, &[number])).unwrap();
                    let mechanism = Mechanism::plain(CKM_ECDSA_SHA256);
                    public_key()
                        .verify(&mechanism, &[number], &signature)
                        .unwrap();
                    assert_eq!(s.one(CKO_PRIVATE_KEY, EC), key);
                }
                s.close().unwrap();
            });
        }
    });
    assert_eq!(library.calls(), before + 160);
}

#[test]
fn a_shared_session_is_used_by_one_at_a_time() {
    let _library = library();
    let s = user();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..100 {
                    // Another thread may be in between: what matters is that nothing breaks.
                    let _ = s.digest_init(CKM_SHA256);
                    let _ = s.feed(C_DigestUpdate, b"abc");
                    let _ = twice(s.last(C_DigestFinal));
                }
            });
        }
    });
    let _ = twice(s.last(C_DigestFinal));
    s.digest_init(CKM_SHA256).unwrap();
    assert_eq!(twice(s.whole(C_Digest, b"abc")).unwrap().len(), 32);
}
