//! Tokens and their objects.

use std::cell::RefCell;

use hsmux_module::{ModuleToken, Options, observe, slots};
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Class, Kind, Made, Mechanism, Oaep, ObjectRef, Operation, Params, Token,
    TokenFlags, Uri, Verb,
};

use crate::fixture::{
    MODULE, Run, aes, create, ec_pair, label_of, on_token, options, rsa_pair, token,
};

#[test]
fn a_token_says_what_it_is() {
    let token = token("info");
    let info = token.info();
    assert_eq!(info.label, "info");
    assert_eq!(info.manufacturer, "SoftHSM project");
    assert_eq!(info.serial.len(), 16);
    assert_eq!(info.lanes, 2);
    assert!(info.flags.contains(TokenFlags::TOKEN_INITIALIZED));
    assert!(info.mechanisms.is_sorted_by_key(|m| m.kind));
    assert!(info.mechanism(CKM_ECDSA).is_some());
    let again = Options {
        slot: Uri {
            serial: Some(info.serial.clone()),
            ..Uri::default()
        },
        ..options("info")
    };
    assert_eq!(ModuleToken::open(again).unwrap().info().label, "info");
}

#[test]
fn a_token_that_is_not_there_or_not_the_only_one_says_what_is_there() {
    create("one");
    create("two");
    for (selector, problem) in [
        (label_of("three"), "no token fits"),
        (Uri::default(), "more than one"),
    ] {
        let wanted = Options {
            slot: selector,
            ..options("one")
        };
        let error = ModuleToken::open(wanted).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        let text = error.to_string();
        assert!(
            text.contains(problem) && text.contains("\"two\" (serial "),
            "{text}"
        );
    }
    assert!(slots(MODULE.as_ref()).unwrap().len() >= 3);
}

#[test]
fn objects_are_named_and_their_epoch_grows_with_changes() {
    let token = token("objects");
    let empty = token.objects().unwrap();
    assert!(empty.objects.is_empty());
    let rsa = token.made(rsa_pair(1));
    let ec = token.made(ec_pair(2));
    let secret = token.made(aes(3));
    let data = token.made(Operation::Create {
        template: Attributes::default()
            .with_flag(CKA_TOKEN, true)
            .with_number(CKA_CLASS, CKO_DATA)
            .with(CKA_APPLICATION, "test")
            .with(CKA_VALUE, "value"),
        near: None,
    });
    let full = token.objects().unwrap();
    assert!(full.epoch > empty.epoch);
    for made in rsa.iter().chain(&ec).chain(&secret).chain(&data) {
        assert!(made.session.is_none());
        let read = full.objects.iter().find(|o| o.id == made.object.id);
        assert_eq!(read.unwrap().attributes, made.object.attributes);
    }
    assert_eq!(full.objects.len(), 6);
    let private = &ec[1].object.attributes;
    assert!(
        private
            .get(CKA_PUBLIC_KEY_INFO)
            .is_some_and(|spki| !spki.is_empty())
    );
    assert!(private.get(CKA_VALUE).is_none());
    assert_eq!(token.objects().unwrap().epoch, full.epoch);

    token
        .run(Operation::Destroy {
            object: ec[0].object.id.into(),
        })
        .unwrap();
    let less = token.objects().unwrap();
    assert!(less.epoch > full.epoch);
    assert_eq!(less.objects.len(), 5);
    let gone = token.run(Operation::Destroy {
        object: ec[0].object.id.into(),
    });
    assert_eq!(gone.unwrap_err().kind(), Kind::UnknownObject);
}

#[test]
fn an_attribute_is_changed_and_an_object_copied() {
    let token = token("changes");
    let key = token.made(aes(3)).remove(0).object.id;
    let relabelled = Attributes::default().with(CKA_LABEL, "another");
    token
        .run(Operation::SetAttributes {
            object: key.into(),
            template: relabelled,
        })
        .unwrap();
    let read = token.made(Operation::Read { object: key.into() }).remove(0);
    assert_eq!(read.object.attributes.text(CKA_LABEL).unwrap(), "another");
    let copy = token
        .made(Operation::Copy {
            object: key.into(),
            template: Attributes::default().with_flag(CKA_TOKEN, false),
        })
        .remove(0);
    assert!(copy.session.is_some());
    assert_eq!(copy.object.id, key);
}

#[test]
fn what_another_session_makes_is_found_and_what_it_deletes_is_unknown() {
    let ours = token("shared");
    assert!(ours.objects().unwrap().objects.is_empty());
    let theirs = ModuleToken::open(options("shared")).unwrap();
    let key = theirs.made(ec_pair(1)).remove(1).object.id;
    let sign = || Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: vec![1; 32].into(),
    };
    assert_eq!(ours.bytes(sign()).unwrap().len(), 64);
    theirs
        .run(Operation::Destroy { object: key.into() })
        .unwrap();
    assert_eq!(ours.bytes(sign()).unwrap_err().kind(), Kind::UnknownObject);
}

thread_local! {
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// The vendor's calls of this name that a piece of work makes on this thread.
fn calls_of(name: &str, work: impl FnOnce()) -> usize {
    observe(|call| CALLS.with_borrow_mut(|calls| calls.push(call)));
    CALLS.take();
    work();
    CALLS.take().iter().filter(|call| **call == name).count()
}

#[test]
fn only_what_is_new_is_read_when_an_object_is_missed() {
    let ours = token("many");
    for id in 1..=20 {
        ours.made(aes(id));
    }
    ours.objects().unwrap();
    let theirs = ModuleToken::open(options("many")).unwrap();
    let new = theirs.made(ec_pair(100)).remove(1).object.id;
    let read = calls_of("C_GetAttributeValue", || {
        let object = new.into();
        ours.made(Operation::Read { object });
    });
    // Four for each half when it is found, four for the one that is read.
    assert!((4..=12).contains(&read), "{read}");
    let all = calls_of("C_GetAttributeValue", || {
        let again = ours.objects().unwrap();
        assert!(again.objects.iter().any(|object| object.id == new));
    });
    assert!(all >= 22 * 4, "{all}");
}

#[test]
fn a_half_made_alone_is_named_by_the_one_made_before() {
    let token = token("halves");
    token.objects().unwrap();
    let pair = token.made(ec_pair(7));
    let (public, private) = (&pair[0].object, &pair[1].object);
    let unlabelled = Operation::SetAttributes {
        object: private.id.into(),
        template: Attributes::default().with(CKA_LABEL, "private"),
    };
    token.run(unlabelled).unwrap();
    let read = token.made(Operation::Read {
        object: private.id.into(),
    });
    assert_eq!(read[0].object.id.name, public.id.name);
    let label = read[0].object.attributes.text(CKA_LABEL);
    assert_eq!(label.as_deref(), Some("private"));
}

#[test]
fn a_session_object_lives_as_long_as_the_token_is_open() {
    let token = token("session-objects");
    let pair = token.made(ec_pair(1));
    let peer = token.made(ec_pair(2));
    let point = peer[0].object.attributes.get(CKA_EC_POINT).unwrap();
    let derive = |public: &[u8]| Operation::Derive {
        key: pair[1].object.id.into(),
        mechanism: Mechanism {
            kind: CKM_ECDH1_DERIVE,
            params: Params::Ecdh {
                kdf: CKD_NULL,
                shared: Vec::new().into(),
                public: public.to_vec().into(),
            },
        },
        template: Attributes::default()
            .with_number(CKA_CLASS, CKO_SECRET_KEY)
            .with_number(CKA_KEY_TYPE, CKK_AES)
            .with_number(CKA_VALUE_LEN, 32)
            .with_flag(CKA_TOKEN, false)
            .with_flag(CKA_SENSITIVE, false)
            .with_flag(CKA_EXTRACTABLE, true)
            .with_flag(CKA_ENCRYPT, true),
    };
    let shared = token.made(derive(point)).remove(0);
    assert_eq!(shared.object.attributes.get(CKA_VALUE).unwrap().len(), 32);
    let session = shared.session.unwrap();
    assert_eq!(session.owner, 0);
    let encrypt = || Operation::Use {
        verb: Verb::Encrypt,
        key: ObjectRef::Session(session),
        mechanism: Mechanism::plain(CKM_AES_ECB),
        data: vec![0; 16].into(),
    };
    let text = token.bytes(encrypt()).unwrap();
    assert_eq!(
        text[..3],
        *shared.object.attributes.get(CKA_CHECK_VALUE).unwrap()
    );
    // It is not among the token's objects.
    assert_eq!(token.objects().unwrap().objects.len(), 4);
    let object = ObjectRef::Session(session);
    token.run(Operation::Destroy { object }).unwrap();
    assert!(token.bytes(encrypt()).is_err());
}

#[test]
fn keys_travel_wrapped_between_tokens() {
    let (from, to) = (token("wraps"), token("unwraps"));
    let transport = to.made(Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: on_token(9)
            .with_number(CKA_MODULUS_BITS, 2048)
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
            .with_flag(CKA_WRAP, true),
        private: on_token(9).with_flag(CKA_UNWRAP, true),
    });
    let public = &transport[0].object.attributes;
    let template = Attributes::default()
        .with_number(CKA_CLASS, CKO_PUBLIC_KEY)
        .with_number(CKA_KEY_TYPE, CKK_RSA)
        .with_flag(CKA_TOKEN, false)
        .with_flag(CKA_WRAP, true)
        .with(CKA_MODULUS, public.get(CKA_MODULUS).unwrap().to_vec())
        .with(
            CKA_PUBLIC_EXPONENT,
            public.get(CKA_PUBLIC_EXPONENT).unwrap().to_vec(),
        );
    let imported = from
        .made(Operation::Create {
            template,
            near: None,
        })
        .remove(0);
    let Operation::Generate {
        mechanism,
        template,
    } = aes(3)
    else {
        unreachable!()
    };
    let template = template.with_flag(CKA_EXTRACTABLE, true);
    let key = from
        .made(Operation::Generate {
            mechanism,
            template,
        })
        .remove(0);
    let oaep = Mechanism {
        kind: CKM_RSA_PKCS_OAEP,
        params: Params::Oaep(Oaep::sha1()),
    };
    let wrapped = from
        .bytes(Operation::Wrap {
            wrapping: ObjectRef::Session(imported.session.unwrap()),
            mechanism: oaep.clone(),
            key: key.object.id.into(),
        })
        .unwrap();
    assert_eq!(wrapped.len(), 256);
    let arrived = to
        .made(Operation::Unwrap {
            unwrapping: transport[1].object.id.into(),
            mechanism: oaep,
            wrapped: wrapped.into(),
            template: on_token(3)
                .with_number(CKA_CLASS, CKO_SECRET_KEY)
                .with_number(CKA_KEY_TYPE, CKK_AES)
                .with_flag(CKA_ENCRYPT, true),
        })
        .remove(0);
    // The same name, by the same check value.
    assert_eq!(arrived.object.id, key.object.id);
    assert_eq!(arrived.object.id.class, Class::SECRET_KEY);
}

#[test]
fn random_bytes_differ_and_have_a_limit() {
    let token = token("random");
    let random = |len| token.bytes(Operation::Random { len });
    let (one, two) = (random(32).unwrap(), random(32).unwrap());
    assert_eq!(one.len(), 32);
    assert_ne!(one, two);
    assert_eq!(random(u32::MAX).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_nested_template_does_not_reach_the_module() {
    let token = token("nested");
    let template = on_token(1).with(CKA_UNWRAP_TEMPLATE, vec![0x41; 24]);
    let error = token
        .run(Operation::Create {
            template,
            near: None,
        })
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

/// SoftHSM 2.6.1 may answer C_GenerateKeyPair with CKR_GENERAL_ERROR while another thread searches.
fn made_at_last(token: &ModuleToken, pair: &Operation) -> Vec<Made> {
    loop {
        match token.run(pair.clone()) {
            Err(error) if error.code() == Some(CKR_GENERAL_ERROR) => {}
            made => return made.unwrap().into_objects().unwrap(),
        }
    }
}

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
    let start = std::time::Instant::now();
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
                let made = made_at_last(&token, &ec_pair(id)).remove(1).object.id;
                token
                    .run(Operation::Destroy {
                        object: made.into(),
                    })
                    .unwrap();
            }
        });
        scope.spawn(|| {
            let Operation::GeneratePair {
                mechanism,
                public,
                private,
            } = ec_pair(1)
            else {
                unreachable!()
            };
            for _ in 0..10 {
                let pair = Operation::GeneratePair {
                    mechanism: mechanism.clone(),
                    public: public.clone().with_flag(CKA_TOKEN, false),
                    private: private.clone().with_flag(CKA_TOKEN, false),
                };
                made_at_last(&token, &pair);
            }
        });
        scope.spawn(|| {
            for _ in 0..20 {
                token.objects().unwrap();
            }
        });
    });
    // A lock taken in two orders would wait half a minute for a session.
    assert!(start.elapsed() < std::time::Duration::from_secs(20));
    let session = ObjectRef::Session(hsmux_token::SessionObject {
        owner: 0,
        handle: 1 << 40,
    });
    let error = token.run(Operation::Read { object: session }).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject);
}
