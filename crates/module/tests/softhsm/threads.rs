//! Many threads on one token.

use hsmux_token::ck::*;
use hsmux_token::{Kind, Mechanism, ObjectRef, Operation, Token, Verb};

use crate::fixture::{Run, ec_pair, ec_pair_of, on_token, token};

/// Locks in inconsistent order would end in errors: no session would become free.
#[test]
fn readers_makers_and_users_do_not_wait_for_each_other() {
    let token = token("busy");
    let key = token.made(ec_pair(1)).remove(1).object.id;
    let sign = Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: vec![1; 32].into(),
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(token.bytes(sign.clone()).unwrap().len(), 64);
                }
            });
        }
        scope.spawn(|| {
            for id in 10..20 {
                let made = token.made(ec_pair(id)).remove(1).object.id;
                token
                    .run(Operation::Destroy {
                        object: made.into(),
                    })
                    .unwrap();
            }
        });
        scope.spawn(|| {
            let pair = ec_pair_of(on_token(1).with_flag(CKA_TOKEN, false));
            for _ in 0..10 {
                token.made(pair.clone());
            }
        });
        scope.spawn(|| {
            for _ in 0..20 {
                token.objects().unwrap();
            }
        });
    });
    let session = ObjectRef::Session(hsmux_token::SessionObject {
        owner: 0,
        handle: 1 << 40,
    });
    let error = token.run(Operation::Read { object: session }).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject);
}
