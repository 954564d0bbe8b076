//! What applications see, may do and leave behind.

use std::thread;

use hsmux_token::{
    Attribute, Attributes, Blob, Kind, Mechanism, ObjectRef, Operation, Outcome, TokenFlags, Verb,
    ck,
};
use hsmux_wire::{Call, Item};

use crate::rig::{Application, PIN, Rig, create, public_key, read, until};

#[test]
fn private_objects_are_there_after_login_only() {
    let rig = Rig::start("");
    let program = rig.application();
    assert!(program.0.welcome().unwrap().pin_login);
    assert_eq!(program.sees(), ["mail", "open", "web"]);
    let before = program.view().epoch;

    program.login(PIN).unwrap();
    assert_eq!(program.sees(), ["mail", "open", "private", "web"]);
    assert_ne!(program.view().epoch, before);
    assert!(program.view().logged_in);
    // Another application is not logged in by that.
    assert_eq!(rig.application().sees(), ["mail", "open", "web"]);

    program.call(Call::Logout).unwrap();
    assert_eq!(program.sees(), ["mail", "open", "web"]);
}

#[test]
fn a_wrong_pin_is_refused_then_throttled() {
    let rig = Rig::start("");
    let login = |pin| rig.application().login(pin).map_err(|error| error.kind());
    for _ in 0..3 {
        assert_eq!(login("wrong"), Err(Kind::PinIncorrect));
    }
    // The right one waits, too: it would be a hint otherwise. A slow machine may need longer for the
    // next than the first wait is, but each wrong one doubles it.
    until("no PIN is looked at", || {
        ["wrong", PIN].map(login) == [Err(Kind::PinThrottled); 2]
    });
    until("it is looked at again", || {
        rig.application().login(PIN).is_ok()
    });
}

#[test]
fn the_connecting_user_may_be_enough() {
    let rig = Rig::start("login = \"peer\"");
    let program = rig.application();
    assert!(!program.0.welcome().unwrap().pin_login);
    let asks = program.view().info.flags;
    assert!(asks.contains(TokenFlags::PROTECTED_AUTHENTICATION_PATH));
    assert_eq!(program.sees(), ["mail", "open", "web"]);
    program.login("").unwrap();
    assert_eq!(program.sees(), ["mail", "open", "private", "web"]);
}

#[test]
fn a_listener_shows_its_keys_only() {
    let rig = Rig::start("keys = [\"pkcs11:object=web\"]");
    let program = rig.application();
    program.login(PIN).unwrap();
    assert_eq!(program.sees(), ["web"]);
    assert!(program.run(&encrypt("web")).is_ok());
    assert_eq!(
        program.run(&encrypt("mail")).unwrap_err().kind(),
        Kind::UnknownObject
    );
    let other = program.run(&create("other", true)).unwrap_err();
    assert_eq!(other.kind(), Kind::Forbidden, "{other}");
}

#[test]
fn read_only_refuses_what_changes_a_token() {
    let rig = Rig::start("read_only = true");
    let program = rig.application();
    program.login(PIN).unwrap();
    assert!(program.0.welcome().unwrap().read_only);
    assert!(
        program
            .view()
            .info
            .flags
            .contains(TokenFlags::WRITE_PROTECTED)
    );
    let destroy = Operation::Destroy {
        object: public_key("web").id.into(),
    };
    for operation in [create("new", true), destroy] {
        let refused = program.run(&operation).unwrap_err();
        assert_eq!(refused.kind(), Kind::ReadOnly);
        assert_eq!(refused.to_rv(), ck::CKR_TOKEN_WRITE_PROTECTED);
    }
    program.make_session_object().unwrap();
    program.run(&encrypt("web")).unwrap();
}

#[test]
fn session_objects_belong_to_one_application_and_end_with_it() {
    let rig = Rig::start("");
    let (first, second) = (rig.application(), rig.application());
    let object = first.make_session_object().unwrap();
    first.run(&read(object)).unwrap();
    assert_eq!(
        second.run(&read(object)).unwrap_err().kind(),
        Kind::UnknownObject
    );
    assert_eq!(rig.held.lock().len(), 1);

    let kept = second.make_session_object().unwrap();
    drop(first);
    until("it is destroyed", || rig.held.lock().len() == 1);
    second.run(&read(kept)).unwrap();
    drop(second);
    until("all are", || rig.held.lock().is_empty());
}

#[test]
fn nobody_plants_a_transport_key() {
    let rig = Rig::start("");
    let program = rig.application();
    program.login(PIN).unwrap();
    for token in [true, false] {
        let refused = program
            .run(&create("hsmux-transport x", token))
            .unwrap_err();
        assert_eq!(refused.kind(), Kind::Forbidden);
    }
}

fn change(object: impl Into<ObjectRef>, kind: u64, value: &[u8]) -> Operation {
    Operation::SetAttributes {
        object: object.into(),
        template: Attributes::default().with(kind, value.to_vec()),
    }
}

fn copy_as_it_is(object: impl Into<ObjectRef>, token: bool) -> Operation {
    Operation::Copy {
        object: object.into(),
        template: Attributes::default().with_flag(ck::CKA_TOKEN, token),
    }
}

fn copy(object: impl Into<ObjectRef>, label: &str) -> Operation {
    Operation::Copy {
        object: object.into(),
        template: Attributes::default()
            .with_flag(ck::CKA_TOKEN, true)
            .with(ck::CKA_LABEL, label.as_bytes().to_vec()),
    }
}

#[test]
fn nobody_plants_a_version_of_a_broker_key() {
    let rig = Rig::start("keys = [\"pkcs11:object=web\", \"pkcs11:object=managed\"]");
    let program = rig.application();
    program.login(PIN).unwrap();
    let mine = ObjectRef::Session(program.make_session_object().unwrap());
    let (web, managed) = (public_key("web").id, public_key("managed").id);
    let mark: &[u8] = b"hsmb\x01 of another";
    let made = |token| {
        let Operation::Create { template, .. } = create("orders", token) else {
            unreachable!()
        };
        Operation::Create {
            template: template.with(ck::CKA_ID, mark.to_vec()),
            near: None,
        }
    };
    for planted in [
        made(true),
        made(false),
        change(web, ck::CKA_ID, mark),
        change(mine, ck::CKA_ID, mark),
        change(managed, ck::CKA_LABEL, b"orders"),
        change(managed, ck::CKA_ID, b"free"),
        copy(managed, "orders"),
        copy_as_it_is(managed, true),
        copy_as_it_is(managed, false),
        Operation::Destroy {
            object: managed.into(),
        },
    ] {
        let refused = program.run(&planted).unwrap_err();
        assert_eq!(refused.kind(), Kind::Forbidden, "{planted:?}: {refused}");
    }
    // This token can do none of it; that is another matter.
    let harmless = change(web, ck::CKA_ID, b"free");
    let other = program.run(&harmless).unwrap_err();
    assert_ne!(other.kind(), Kind::Forbidden, "{other}");
}

#[test]
fn a_key_of_the_broker_is_there_for_listeners_that_name_it() {
    for (keys, there) in [
        ("", false),
        ("keys = [\"pkcs11:type=public\"]", false),
        ("keys = [\"pkcs11:\"]", false),
        ("keys = [\"pkcs11:object=managed;type=public\"]", true),
        ("keys = [\"pkcs11:id=hsmb%01rest\"]", true),
    ] {
        let rig = Rig::start(keys);
        let program = rig.application();
        program.login(PIN).unwrap();
        let seen = program.sees().iter().any(|label| label == "managed");
        assert_eq!(seen, there, "{keys}");
        let used = program.run(&encrypt("managed"));
        assert_eq!(used.is_ok(), there, "{keys}");
    }
}

#[test]
fn nobody_leaves_a_listener_s_keys_by_another_name() {
    let rig = Rig::start("keys = [\"pkcs11:object=web\"]");
    let program = rig.application();
    program.login(PIN).unwrap();
    let mine = ObjectRef::Session(program.make_session_object().unwrap());
    let web = public_key("web").id;
    for leaves in [
        change(web, ck::CKA_LABEL, b"mail"),
        copy(web, "mail"),
        copy(mine, "mail"),
        copy_as_it_is(mine, true),
    ] {
        let refused = program.run(&leaves).unwrap_err();
        assert_eq!(refused.kind(), Kind::Forbidden, "{leaves:?}: {refused}");
    }
    // This token can do none of it; that is another matter.
    for stays in [change(web, ck::CKA_ID, b"new"), copy(mine, "web")] {
        let other = program.run(&stays).unwrap_err();
        assert_ne!(other.kind(), Kind::Forbidden, "{stays:?}: {other}");
    }
}

#[test]
fn making_secrets_needs_a_login() {
    let rig = Rig::start("");
    let program = rig.application();
    let generate = Operation::Generate {
        mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
        template: Attributes::default(),
    };
    assert_eq!(
        program.run(&generate).unwrap_err().kind(),
        Kind::NotLoggedIn
    );
}

#[test]
fn a_batch_is_answered_in_its_order_whatever_becomes_of_its_parts() {
    let rig = Rig::start("");
    let program = rig.application();
    let results = program.run_all(vec![
        Operation::Random { len: 3 },
        create("hsmux-transport", false),
        encrypt("web"),
    ]);
    let bytes = |at: usize| results[at].clone().unwrap().into_bytes().unwrap();
    assert_eq!(&bytes(0)[..], [7; 3]);
    assert_eq!(results[1].as_ref().unwrap_err().kind(), Kind::Forbidden);
    assert_eq!(&bytes(2)[..], b"data");
    assert!(program.run_all(Vec::new()).is_empty());
}

#[test]
fn an_application_is_not_an_administrator() {
    let rig = Rig::start("");
    for call in [
        Call::Admin(Blob::from(b"{\"act\":\"stop\"}".to_vec())),
        Call::Objects,
        Call::Start(hsmux_token::Secret::default()),
    ] {
        assert_eq!(
            rig.application().call(call).unwrap_err().kind(),
            Kind::Forbidden
        );
    }
    let admin = Application::connect(&rig.path("hsmux-admin.sock")).unwrap();
    let refused = admin.run(&Operation::Random { len: 1 }).unwrap_err();
    assert_eq!(refused.kind(), Kind::Forbidden);
}

fn encrypt(label: &str) -> Operation {
    Operation::Use {
        verb: Verb::Encrypt,
        key: public_key(label).id.into(),
        mechanism: Mechanism::plain(ck::CKM_RSA_PKCS),
        data: Blob::from(b"data".to_vec()),
    }
}

#[test]
fn results_of_the_token_come_through() {
    let rig = Rig::start("");
    let outcome = rig
        .application()
        .run(&Operation::Random { len: 5 })
        .unwrap();
    assert!(matches!(outcome, Outcome::Bytes(bytes) if bytes.len() == 5));
}

/// What a library never sends: our own and the vendor's module would read it differently.
#[test]
fn a_template_that_can_be_read_in_two_ways_is_refused_unseen() {
    let rig = Rig::start("read_only = true");
    let program = rig.application();
    program.login(PIN).unwrap();
    let with = |kind: u64, value: &[u8]| {
        let Operation::Create { mut template, .. } = create("plain", false) else {
            unreachable!()
        };
        let value = Blob::from(value.to_vec());
        template.0.push(Attribute { kind, value });
        Operation::Create {
            template,
            near: None,
        }
    };
    for operation in [
        with(ck::CKA_TOKEN, &[1]),
        with(ck::CKA_LABEL, b"hsmux-transport-x"),
        with(ck::CKA_MODIFIABLE, &[1; 8]),
        with(ck::CKA_SENSITIVE, &[2]),
        with(ck::CKA_KEY_TYPE, &[0; 4]),
    ] {
        let refused = program.run(&operation).unwrap_err();
        let expected = [
            ck::CKR_TEMPLATE_INCONSISTENT,
            ck::CKR_ATTRIBUTE_VALUE_INVALID,
        ];
        assert!(expected.contains(&refused.to_rv()), "{refused}");
    }
    assert!(rig.held.lock().is_empty());
}

#[test]
fn one_call_holds_so_many_operations() {
    let rig = Rig::start("");
    let program = rig.application();
    program.login(PIN).unwrap();
    let item = |_| Item {
        behalf: None,
        operation: create("many", true),
        remaining_us: u64::MAX,
    };
    let refused = program
        .call(Call::Execute((0..65).map(item).collect()))
        .unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
    assert!(rig.held.lock().is_empty());
}

#[test]
fn a_private_object_that_comes_after_the_logout_goes_at_once() {
    let rig = Rig::start("");
    let program = rig.application();
    program.login(PIN).unwrap();
    let token = rig.token.lock().clone().unwrap();
    let calls = token.calls();
    token.hang();
    let Operation::Create { template, .. } = create("late", false) else {
        unreachable!()
    };
    let template = template.with_flag(ck::CKA_PRIVATE, true);
    let refused = thread::scope(|scope| {
        let late = scope.spawn(|| {
            program.run(&Operation::Create {
                template,
                near: None,
            })
        });
        until("the token is at it", || token.calls() > calls);
        program.call(Call::Logout).unwrap();
        token.heal();
        late.join().unwrap().unwrap_err()
    });
    assert_eq!(refused.kind(), Kind::NotLoggedIn, "{refused}");
    until("it is destroyed", || rig.held.lock().is_empty());
}

/// A software token works at one for minutes.
#[test]
fn large_keys_are_made_after_a_login_only() {
    let rig = Rig::start("");
    let program = rig.application();
    let pair = |bits| Operation::GeneratePair {
        mechanism: Mechanism::plain(ck::CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: Attributes::default().with_number(ck::CKA_MODULUS_BITS, bits),
        private: Attributes::default()
            .with_flag(ck::CKA_TOKEN, false)
            .with_flag(ck::CKA_PRIVATE, false),
    };
    let domain = Operation::Generate {
        mechanism: Mechanism::plain(ck::CKM_DSA_PARAMETER_GEN),
        template: Attributes::default().with_number(ck::CKA_PRIME_BITS, 8192),
    };
    let calls = rig.token.lock().clone().unwrap().calls();
    for operation in [pair(4104), pair(u64::MAX), domain] {
        let refused = program.run(&operation).unwrap_err();
        assert_eq!(refused.kind(), Kind::NotLoggedIn, "{refused}");
        assert!(refused.to_string().contains("4096 bits"), "{refused}");
    }
    assert_eq!(rig.token.lock().clone().unwrap().calls(), calls);
    let asked = |program: &Application, bits| {
        let refused = program.run(&pair(bits)).err();
        refused.is_none_or(|error| error.kind() != Kind::NotLoggedIn)
    };
    assert!(asked(&program, 4096));
    program.login(PIN).unwrap();
    assert!(asked(&program, 8192));
}
