//! How keys were made, as their copies say it.

use super::bench::{Bench, in_own_process, of_class, secret};
use super::pool_writer::{THREE, make, pool, serving, soon};
use hsmux_state::json::Name;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, ObjectId, Operation, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn every_copy_of_a_key_says_how_it_was_made_also_after_a_restart_and_by_another_name() {
    let name = "origins::every_copy_of_a_key_says_how_it_was_made_also_after_a_restart_and_by_another_name";
    in_own_process(name, THREE, |folder| {
        let there = Arc::new(AtomicBool::new(true));
        let (first, writer) = pool(folder, &there, 3);
        make(
            &first,
            &secret(CKM_AES_KEY_GEN, 32, "by which hsm3 is known"),
        );
        drop((first, writer));
        there.store(false, Ordering::SeqCst);
        let (second, writer) = pool(folder, &there, 2);
        let made = make(&second, &secret(CKM_AES_KEY_GEN, 32, "made"))[0];
        let rename = Operation::SetAttributes {
            object: made.into(),
            template: Attributes::default().with(CKA_ID, b"another".to_vec()),
        };
        second.execute(&rename, soon()).unwrap();
        assert!(second.catalogue().get(&made).is_none());
        drop((second, writer));
        there.store(true, Ordering::SeqCst);
        let (third, _writer) = pool(folder, &there, 2);
        let named = third.objects().unwrap();
        let named = named.objects.iter();
        let mut named = named.filter(|o| o.attributes.get(CKA_ID) == Some(b"another"));
        let renamed = named.next().unwrap().id;
        assert_eq!(serving(&third, renamed, 3).len(), 3);
        let catalogue = third.catalogue();
        for replica in &catalogue.get(&renamed).unwrap().replicas {
            let told = &replica.object.attributes;
            assert_eq!(told.flag(CKA_LOCAL), Some(true), "{}", replica.seat);
            assert_eq!(told.flag(CKA_NEVER_EXTRACTABLE), Some(true));
            assert_eq!(told.number(CKA_VALUE_LEN), Some(32));
            assert_eq!(told.number(CKA_KEY_GEN_MECHANISM), Some(CKM_AES_KEY_GEN));
        }
    });
}

fn has_origin(bench: &Bench, id: ObjectId) -> bool {
    let journal = &bench.coordinator.journal;
    journal.read(|state| state.origins.contains_key(&Name(id)))
}

fn destroy(id: ObjectId) -> Operation {
    Operation::Destroy { object: id.into() }
}

/// Else a program could exchange a key that was generated for one that it knows, and have it take the same name.
#[test]
fn what_comes_under_the_name_of_a_key_that_has_gone_does_not_say_how_that_was_made() {
    let name =
        "origins::what_comes_under_the_name_of_a_key_that_has_gone_does_not_say_how_that_was_made";
    in_own_process(name, &["hsm1", "hsm2"], |folder| {
        let known = Operation::Create {
            template: Attributes::default()
                .with_number(CKA_CLASS, CKO_SECRET_KEY)
                .with_number(CKA_KEY_TYPE, CKK_AES)
                .with_flag(CKA_TOKEN, true)
                .with_flag(CKA_ENCRYPT, true)
                .with(CKA_ID, b"known".to_vec())
                .with(CKA_VALUE, vec![7; 32]),
            near: None,
        };
        let both = Bench::new(folder, &["hsm1", "hsm2"], 2);
        let id = of_class(&both.make(&known), Class::SECRET_KEY);
        assert!(has_origin(&both, id));
        both.change(&destroy(id)).unwrap();
        assert!(!has_origin(&both, id), "by all members");
        both.make(&known);
        drop(both);

        let alone = Bench::new(folder, &["hsm1"], 1);
        assert!(has_origin(&alone, id));
        alone.change(&destroy(id)).unwrap();
        assert!(!has_origin(&alone, id), "by the only member");
        drop(alone);

        let both = Bench::new(folder, &["hsm1", "hsm2"], 2);
        both.make(&known);
        drop(both);
        let alone = Bench::new(folder, &["hsm1"], 1);
        let token = alone.token("hsm1");
        token.execute(&destroy(id), soon()).unwrap();
        assert_eq!(of_class(&alone.make(&known), Class::SECRET_KEY), id);
        assert!(!has_origin(&alone, id), "by other means");
        drop(alone);
        let again = Bench::new(folder, &["hsm1"], 1);
        assert!(!has_origin(&again, id), "also after a restart");
    });
}
