//! Members that fail while others change: later changes of the same objects wait for them, and nothing is undone by halves.

use super::bench::{Tampered, secret};
use super::{Bench, in_own_process};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Error, Kind, ObjectId, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TWO: &[&str] = &["hsm1", "hsm2"];

fn data(label: &'static str) -> Operation {
    Operation::Create {
        template: Attributes::default()
            .with_number(CKA_CLASS, CKO_DATA)
            .with_flag(CKA_TOKEN, true)
            .with(CKA_LABEL, label)
            .with(CKA_VALUE, "text"),
        near: None,
    }
}

fn label(label: &'static str) -> Attributes {
    Attributes::default().with(CKA_LABEL, label)
}

/// Has a member answer some operations with an error, as long as the switch is on; with `has_effect` after they took effect.
fn fail(
    bench: &Bench,
    member: &str,
    error: &Error,
    has_effect: bool,
    which: impl Fn(&Operation) -> bool + Send + Sync + 'static,
) -> Arc<AtomicBool> {
    let (inner, error) = (bench.token(member), error.clone());
    let fails = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&fails);
    let below = Arc::clone(&inner);
    let tamper = move |operation: &Operation| {
        if !which(operation) || !switch.load(Ordering::SeqCst) {
            return None;
        }
        if has_effect {
            let deadline = Instant::now() + Duration::from_secs(60);
            // Also a second time, when there is nothing left to do.
            let _ = below.execute(operation, deadline);
        }
        Some(Err(error.clone()))
    };
    bench.swap(member, Arc::new(Tampered { inner, tamper }));
    fails
}

fn destroy(id: ObjectId) -> Operation {
    Operation::Destroy { object: id.into() }
}

#[test]
fn data_is_made_again_by_a_name_that_other_data_had() {
    let name = "failing_members::data_is_made_again_by_a_name_that_other_data_had";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let first = bench.make(&data("old"))[0].object.id;
        let object = first.into();
        let template = label("new");
        bench
            .change(&Operation::SetAttributes { object, template })
            .unwrap();
        let again = bench.make(&data("old"));
        assert_eq!(again[0].object.id, first);
        assert_eq!(bench.everywhere().len(), 2);
    });
}

#[test]
fn an_object_of_several_members_is_not_deleted_on_one_alone() {
    let name = "failing_members::an_object_of_several_members_is_not_deleted_on_one_alone";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 1);
        let key = bench.make(&secret(CKM_AES_KEY_GEN, 32, "key"))[0].object.id;
        let refused = Error::vendor("C_GetAttributeValue", CKR_FUNCTION_REJECTED);
        let reads = |operation: &Operation| matches!(operation, Operation::Read { .. });
        let fails = fail(&bench, "hsm2", &refused, false, reads);
        bench.change(&destroy(key)).unwrap_err();
        fails.store(false, Ordering::SeqCst);
        assert_eq!(bench.everywhere(), [key]);
    });
}

#[test]
fn a_deletion_of_which_no_token_has_told_is_finished() {
    let name = "failing_members::a_deletion_of_which_no_token_has_told_is_finished";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let key = bench.make(&secret(CKM_AES_KEY_GEN, 32, "key"))[0].object.id;
        let lost = Error::lost("the worker died");
        let destroys = |operation: &Operation| matches!(operation, Operation::Destroy { .. });
        let fails = fail(&bench, "hsm1", &lost, true, destroys);
        fail(&bench, "hsm2", &lost, false, destroys);
        let error = bench.change(&destroy(key)).unwrap_err().to_string();
        assert!(error.contains("no member has confirmed it"), "{error}");
        assert!(bench.coordinator.is_tombstoned(&key));
        let gone = bench.pool.gone.lock().clone();
        let is_told = |member: &&str| gone.contains(&((*member).to_owned(), key));
        assert!(
            TWO.iter().all(is_told),
            "no member serves it any more: {gone:?}"
        );
        fails.store(false, Ordering::SeqCst);
        let serial = &bench.token("hsm2").info().serial;
        assert!(bench.coordinator.owes(serial), "it has not deleted it yet");
    });
}

#[test]
fn a_member_that_owes_an_object_gets_its_copy_afterwards() {
    let name = "failing_members::a_member_that_owes_an_object_gets_its_copy_afterwards";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 1);
        let full = Error::vendor("C_CreateObject", CKR_DEVICE_MEMORY);
        let creates = |operation: &Operation| matches!(operation, Operation::Create { .. });
        let fails = fail(&bench, "hsm2", &full, false, creates);
        let model = bench.make(&data("model"))[0].object.id;
        let object = model.into();
        bench.make(&Operation::Copy {
            object,
            template: label("copy"),
        });
        let template = label("model by another name");
        bench
            .change(&Operation::SetAttributes { object, template })
            .unwrap();
        assert!(bench.holdings()[1].is_empty());
        fails.store(false, Ordering::SeqCst);
        bench.make(&data("it pays before"));
        assert_eq!(bench.everywhere().len(), 3);
    });
}

#[test]
fn what_a_token_does_not_set_back_is_not_owed() {
    let name = "failing_members::what_a_token_does_not_set_back_is_not_owed";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let key = bench.make(&secret(CKM_AES_KEY_GEN, 32, "first"))[0]
            .object
            .id;
        let call = |name, derives| Operation::SetAttributes {
            object: key.into(),
            template: label(name).with_flag(CKA_DERIVE, derives),
        };
        let one_way = Error::vendor("C_SetAttributeValue", CKR_ATTRIBUTE_READ_ONLY);
        let refused = Error::vendor("C_SetAttributeValue", CKR_FUNCTION_REJECTED);
        let sets = |operation: &Operation, derives| {
            matches!(operation, Operation::SetAttributes { template, .. }
                if template.flag(CKA_DERIVE) == Some(derives))
        };
        bench.change(&call("first", false)).unwrap();
        fail(&bench, "hsm1", &one_way, false, move |o| sets(o, false));
        fail(&bench, "hsm2", &refused, false, move |o| sets(o, true));
        let error = bench.change(&call("second", true)).unwrap_err();
        assert_eq!(error.code(), Some(CKR_FUNCTION_REJECTED), "{error}");
        for (member, objects) in TWO.iter().zip(bench.holdings()) {
            let label = objects[0].attributes.text(CKA_LABEL);
            assert_eq!(label.as_deref(), Some("first"), "{member}");
            let serial = &bench.token(member).info().serial;
            assert!(!bench.coordinator.owes(serial), "{member}");
        }
        let template = label("third");
        let object = key.into();
        bench
            .change(&Operation::SetAttributes { object, template })
            .unwrap();
    });
}

#[test]
fn an_object_does_not_get_the_name_of_another_one() {
    let name = "failing_members::an_object_does_not_get_the_name_of_another_one";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let [one, other] = ["one", "other"].map(|label| bench.make(&data(label))[0].object.id);
        let rename = |object: ObjectId, name| Operation::SetAttributes {
            object: object.into(),
            template: label(name),
        };
        let error = bench.change(&rename(one, "other")).unwrap_err().to_string();
        assert!(
            error.contains("could not tell two of them apart"),
            "{error}"
        );
        let mut both = [one, other];
        both.sort_unstable();
        assert_eq!(bench.everywhere(), both);
    });
}

#[test]
fn an_object_is_not_deleted_by_a_name_that_it_had() {
    let name = "failing_members::an_object_is_not_deleted_by_a_name_that_it_had";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let old = bench.make(&data("old"))[0].object.id;
        let (token, deadline) = (
            bench.token("hsm1"),
            Instant::now() + Duration::from_secs(60),
        );
        let set = Operation::SetAttributes {
            object: old.into(),
            template: label("new"),
        };
        // Nobody has read it since.
        token.execute(&set, deadline).unwrap();
        let error = token.execute(&destroy(old), deadline).unwrap_err();
        assert_eq!(error.kind(), Kind::UnknownObject, "{error}");
        assert_eq!(bench.holdings()[0].len(), 1);
    });
}

#[test]
fn a_key_that_is_imported_again_stays_if_that_fails() {
    let name = "failing_members::a_key_that_is_imported_again_stays_if_that_fails";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let import = Operation::Create {
            template: Attributes::default()
                .with_number(CKA_CLASS, CKO_SECRET_KEY)
                .with_number(CKA_KEY_TYPE, CKK_AES)
                .with_flag(CKA_TOKEN, true)
                .with_flag(CKA_ENCRYPT, true)
                .with_flag(CKA_EXTRACTABLE, true)
                .with(CKA_ID, "id")
                .with(CKA_VALUE, vec![7; 32]),
            near: None,
        };
        let key = bench.make(&import)[0].object.id;
        assert_eq!(bench.make(&import)[0].object.id, key);
        assert_eq!(bench.everywhere(), [key], "and not twice");
        let full = Error::vendor("C_GetAttributeValue", CKR_DEVICE_MEMORY);
        let reads = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&reads);
        let fails = fail(&bench, "hsm2", &full, false, move |operation| {
            // After the plan.
            let is_read = matches!(operation, Operation::Read { .. });
            is_read && begun.swap(true, Ordering::SeqCst)
        });
        bench.change(&import).unwrap_err();
        assert!(reads.load(Ordering::SeqCst));
        fails.store(false, Ordering::SeqCst);
        bench.make(&data("it pays before"));
        assert_eq!(bench.everywhere().len(), 2);
    });
}

#[test]
fn a_deletion_that_all_tokens_refuse_is_none() {
    let name = "failing_members::a_deletion_that_all_tokens_refuse_is_none";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let key = bench.make(&secret(CKM_AES_KEY_GEN, 32, "key"))[0].object.id;
        let refused = Error::vendor("C_DestroyObject", CKR_VENDOR_DEFINED | 7);
        for member in TWO {
            let destroys = |operation: &Operation| matches!(operation, Operation::Destroy { .. });
            fail(&bench, member, &refused, false, destroys);
        }
        let error = bench.change(&destroy(key)).unwrap_err().to_string();
        assert!(error.contains("it was undone"), "{error}");
        assert!(!bench.coordinator.is_tombstoned(&key));
        assert_eq!(bench.everywhere(), [key]);
    });
}

#[test]
fn a_member_that_refuses_a_change_owes_nothing_of_it() {
    let name = "failing_members::a_member_that_refuses_a_change_owes_nothing_of_it";
    in_own_process(name, TWO, |folder| {
        let bench = Bench::new(folder, TWO, 0);
        let key = bench.make(&secret(CKM_AES_KEY_GEN, 32, "first"))[0]
            .object
            .id;
        let refused = Error::vendor("C_SetAttributeValue", CKR_FUNCTION_NOT_SUPPORTED);
        let sets = |operation: &Operation| matches!(operation, Operation::SetAttributes { .. });
        fail(&bench, "hsm2", &refused, false, sets);
        let set = Operation::SetAttributes {
            object: key.into(),
            template: label("second"),
        };
        for _ in 0..2 {
            let error = bench.change(&set).unwrap_err();
            assert_eq!(error.code(), Some(CKR_FUNCTION_NOT_SUPPORTED), "{error}");
            let serial = &bench.token("hsm2").info().serial;
            assert!(!bench.coordinator.owes(serial));
        }
        for objects in bench.holdings() {
            assert_eq!(
                objects[0].attributes.text(CKA_LABEL).as_deref(),
                Some("first")
            );
        }
    });
}
