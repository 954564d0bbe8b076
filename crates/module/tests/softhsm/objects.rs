//! Names of a token's objects, and updates when they change.

use std::cell::RefCell;

use hsmux_module::{ModuleToken, observe};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Kind, Mechanism, Operation, Token, Verb};

use crate::fixture::{Run, aes, ec_pair, options, rsa_pair, token};

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

/// Counts calls of this vendor function by a piece of work on this thread.
pub fn calls_of(name: &str, work: impl FnOnce()) -> usize {
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
