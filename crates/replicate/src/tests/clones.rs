//! Existing keys to more tokens.

use super::bench::{Tampered, of_class, pair, secret};
use super::{Bench, in_own_process};
use crate::{CloneOutcome, ClonedObject, Selection};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Error, ObjectId, Operation, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

const THREE: &[&str] = &["hsm1", "hsm2", "hsm3"];

/// Runs an operation on hsm1 only.
fn on_first(bench: &Bench, operation: &Operation) -> Vec<ObjectId> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let outcome = bench.token("hsm1").execute(operation, deadline).unwrap();
    let made = outcome.into_objects().unwrap();
    made.iter().map(|made| made.object.id).collect()
}

fn with(mut operation: Operation, kind: u64, value: bool) -> Operation {
    match &mut operation {
        Operation::GeneratePair {
            private: template, ..
        }
        | Operation::Generate { template, .. } => template.set_flag(kind, value),
        _ => {}
    }
    operation
}

fn clone(
    bench: &Bench,
    selection: &Selection,
    wrapping: Option<ObjectId>,
) -> Result<Vec<ClonedObject>> {
    let members = bench.pool.members.lock().clone();
    bench
        .coordinator
        .clone_keys(&members[0], &members[1..], selection, wrapping, &|_| ())
}

/// RSA, EC and AES keys that may leave hsm1, and a data object.
fn fill(bench: &Bench) {
    for operation in [pair(true, "rsa"), secret(CKM_AES_KEY_GEN, 32, "aes")] {
        on_first(bench, &with(operation, CKA_EXTRACTABLE, true));
    }
    // Named by its CKA_ID: on hsm1 a private key on a curve does not tell its public half.
    let Operation::GeneratePair {
        mechanism,
        public,
        private,
    } = with(pair(false, "ec"), CKA_EXTRACTABLE, true)
    else {
        unreachable!()
    };
    on_first(
        bench,
        &Operation::GeneratePair {
            mechanism,
            public: public.with(CKA_ID, vec![7]),
            private: private.with(CKA_ID, vec![7]),
        },
    );
    let template = Attributes::default()
        .with_number(CKA_CLASS, CKO_DATA)
        .with_flag(CKA_TOKEN, true)
        .with(CKA_LABEL, "notes")
        .with(CKA_VALUE, "text");
    on_first(
        bench,
        &Operation::Create {
            template,
            near: None,
        },
    );
}

#[test]
fn everything_is_cloned_and_a_second_run_finds_it() {
    in_own_process(
        "clones::everything_is_cloned_and_a_second_run_finds_it",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 0);
            fill(&bench);
            let cloned = clone(&bench, &Selection::default(), None).unwrap();
            assert_eq!(cloned.len(), 12);
            for one in &cloned {
                assert!(matches!(one.outcome, CloneOutcome::Copied), "{one:?}");
            }
            assert_eq!(bench.everywhere().len(), 6);
            let copies = &bench.holdings()[1];
            let keys = copies
                .iter()
                .filter(|o| matches!(o.id.class, Class::PRIVATE_KEY | Class::SECRET_KEY));
            for key in keys {
                assert_eq!(key.attributes.flag(CKA_EXTRACTABLE), Some(false));
            }
            for one in clone(&bench, &Selection::default(), None).unwrap() {
                assert!(matches!(one.outcome, CloneOutcome::There), "{one:?}");
            }
        },
    );
}

#[test]
fn a_key_that_cannot_leave_is_refused_by_name_and_the_others_go_on() {
    let name = "clones::a_key_that_cannot_leave_is_refused_by_name_and_the_others_go_on";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        fill(&bench);
        let stays = on_first(&bench, &with(pair(true, "stays"), CKA_EXTRACTABLE, false));
        let cloned = clone(&bench, &Selection::default(), None).unwrap();
        let failed: Vec<_> = cloned
            .iter()
            .filter_map(|one| match &one.outcome {
                CloneOutcome::Failed(error) => Some((one, error)),
                _ => None,
            })
            .collect();
        assert_eq!(failed.len(), 2, "on two targets");
        for (one, error) in failed {
            assert!(stays.contains(&one.object));
            assert_eq!(one.label, "stays");
            assert!(error.to_string().contains("cannot leave hsm1"), "{error}");
        }
    });
}

#[test]
fn a_selected_key_goes_with_its_other_half_under_a_key_that_both_hold() {
    let name = "clones::a_selected_key_goes_with_its_other_half_under_a_key_that_both_hold";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        let both = with(secret(CKM_AES_KEY_GEN, 32, "kek"), CKA_WRAP, true);
        let both = with(both, CKA_UNWRAP, true);
        let kek = of_class(&bench.make(&both), Class::SECRET_KEY);
        fill(&bench);
        let rsa = bench.holdings()[0]
            .iter()
            .find(|o| {
                o.id.class == Class::PRIVATE_KEY && o.attributes.text(CKA_LABEL).unwrap() == "rsa"
            })
            .unwrap()
            .id;
        let selection = Selection {
            objects: Some(vec![rsa]),
            extractable: true,
        };
        let cloned = clone(&bench, &selection, Some(kek)).unwrap();
        assert_eq!(cloned.len(), 4, "{cloned:?}");
        assert!(
            cloned
                .iter()
                .all(|one| matches!(one.outcome, CloneOutcome::Copied)),
            "{cloned:?}"
        );
        let copies = bench.holdings();
        let copy = copies[2].iter().find(|o| o.id == rsa).unwrap();
        assert_eq!(copy.attributes.flag(CKA_EXTRACTABLE), Some(true));
        let unknown = ObjectId::of_data(b"", b"", b"");
        refused(&bench, unknown, "does not hold the wrapping key");
    });
}

/// A key under which nothing can be copied: no object goes anywhere.
fn refused(bench: &Bench, wrapping: ObjectId, why: &str) {
    let before = bench.holdings();
    let cloned = clone(bench, &Selection::default(), Some(wrapping)).unwrap();
    assert!(!cloned.is_empty());
    for one in cloned {
        let CloneOutcome::Failed(error) = &one.outcome else {
            panic!("{one:?}");
        };
        assert!(error.to_string().contains(why), "{error}");
    }
    let after = bench.holdings();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.len(), after.len());
    }
}

#[test]
fn a_key_that_cannot_wrap_is_refused_before_anything_is_copied() {
    let name = "clones::a_key_that_cannot_wrap_is_refused_before_anything_is_copied";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        fill(&bench);
        let held = |key: &Operation| of_class(&bench.make(key), Class::SECRET_KEY);
        let aes = |label| secret(CKM_AES_KEY_GEN, 32, label);
        let no_wrap = held(&with(aes("no wrap"), CKA_WRAP, false));
        refused(&bench, no_wrap, "hsm1 may not wrap");
        let no_unwrap = held(&with(aes("no unwrap"), CKA_UNWRAP, false));
        refused(&bench, no_unwrap, "may not unwrap");
        let generic = held(&secret(CKM_GENERIC_SECRET_KEY_GEN, 32, "generic"));
        refused(&bench, generic, "no AES key");
    });
}

#[test]
fn a_copy_that_is_another_key_does_not_stay() {
    in_own_process(
        "clones::a_copy_that_is_another_key_does_not_stay",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 0);
            on_first(&bench, &with(pair(true, "rsa"), CKA_EXTRACTABLE, true));
            // A token that signs with something else.
            let tamper = |operation: &Operation| match operation {
                Operation::Use { .. } => Some(Err(Error::vendor("C_Sign", CKR_FUNCTION_FAILED))),
                _ => None,
            };
            // It is enrolled before: that takes a MAC by a key that it unwraps.
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            let inner = bench.token("hsm2");
            bench.swap("hsm2", Arc::new(Tampered { inner, tamper }));
            let cloned = clone(&bench, &Selection::default(), None).unwrap();
            let failed = |one: &&ClonedObject| {
                one.target == "hsm2" && matches!(one.outcome, CloneOutcome::Failed(_))
            };
            assert!(cloned.iter().filter(failed).count() >= 1, "{cloned:?}");
            let private = |o: &&hsmux_token::Object| o.id.class == Class::PRIVATE_KEY;
            assert_eq!(bench.holdings()[1].iter().filter(private).count(), 0);
            assert_eq!(bench.holdings()[2].iter().filter(private).count(), 1);
        },
    );
}
