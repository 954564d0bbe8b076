//! Changes that reach all members, and changes that reach none.

use super::bench::{Tampered, WithoutSerial, of_class, pair, secret};
use super::{Bench, in_own_process};
use crate::members::PresentMember;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Error, Kind, Operation, Token};
use std::sync::Arc;

const THREE: &[&str] = &["hsm1", "hsm2", "hsm3"];

#[test]
fn new_keys_reach_all_members_and_cannot_leave_them() {
    in_own_process(
        "changes::new_keys_reach_all_members_and_cannot_leave_them",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 0);
            let mut wanted = Vec::new();
            for operation in [
                pair(true, "rsa"),
                pair(false, "ec"),
                secret(CKM_AES_KEY_GEN, 32, "aes"),
                secret(CKM_GENERIC_SECRET_KEY_GEN, 32, "mac"),
            ] {
                wanted.extend(bench.make(&operation).iter().map(|made| made.object.id));
            }
            wanted.sort();
            assert_eq!(wanted.len(), 6);
            assert_eq!(bench.everywhere(), wanted);
            let guarded = |o: &&hsmux_token::Object| {
                matches!(o.id.class, Class::PRIVATE_KEY | Class::SECRET_KEY)
            };
            for object in bench.holdings().iter().flatten().filter(guarded) {
                assert_eq!(object.attributes.flag(CKA_EXTRACTABLE), Some(false));
                assert_eq!(object.attributes.flag(CKA_SENSITIVE), Some(true));
            }
        },
    );
}

#[test]
fn a_change_that_one_member_fails_is_taken_back() {
    in_own_process(
        "changes::a_change_that_one_member_fails_is_taken_back",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 0);
            bench.make(&pair(false, "stays"));
            let before = bench.everywhere();
            let inner = bench.token("hsm3");
            let tamper = |operation: &Operation| match operation {
                Operation::Unwrap { template, .. } if template.flag(CKA_TOKEN) == Some(true) => {
                    Some(Err(Error::vendor("C_UnwrapKey", CKR_DEVICE_MEMORY)))
                }
                _ => None,
            };
            bench.swap("hsm3", Arc::new(Tampered { inner, tamper }));
            let error = bench.change(&pair(false, "goes")).unwrap_err();
            assert_eq!(error.kind(), Kind::TooFewMembers, "{error}");
            assert!(error.to_string().contains("hsm3"), "{error}");
            assert_eq!(bench.everywhere(), before);
        },
    );
}

#[test]
fn a_member_that_is_away_catches_up() {
    in_own_process(
        "changes::a_member_that_is_away_catches_up",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 0);
            let old = bench.make(&secret(CKM_AES_KEY_GEN, 16, "old"));
            bench.pool.leaves("hsm2");
            let new = bench.make(&pair(false, "new"));
            let old = old[0].object.id;
            bench
                .change(&Operation::Destroy { object: old.into() })
                .unwrap();
            assert!(bench.coordinator.is_tombstoned(&old));
            drop(bench);

            let bench = Bench::new(folder, THREE, 0);
            assert!(
                bench.coordinator.is_tombstoned(&old),
                "also after a restart"
            );
            let hsm2 = bench.pool.returns("hsm2");
            let told = bench.coordinator.catch_up(&*bench.pool, &hsm2).unwrap();
            assert_eq!(told.applied, 2, "{told:?}");
            assert!(
                told.failed.is_empty() && told.missing.is_empty(),
                "{told:?}"
            );
            let mut wanted: Vec<_> = new.iter().map(|made| made.object.id).collect();
            wanted.sort();
            assert_eq!(bench.everywhere(), wanted);
        },
    );
}

#[test]
fn too_few_members_refuse_a_change_before_it_begins() {
    in_own_process(
        "changes::too_few_members_refuse_a_change_before_it_begins",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 2);
            bench.pool.leaves("hsm1");
            bench.pool.leaves("hsm2");
            let error = bench.change(&pair(false, "x")).unwrap_err();
            assert_eq!(error.kind(), Kind::TooFewMembers, "{error}");
            assert!(bench.everywhere().is_empty());
            // hsm1 is away and unknown; two members are enough.
            bench.pool.returns("hsm2");
            bench.make(&pair(false, "y"));
            let holdings = bench.holdings();
            assert!(holdings[0].is_empty());
            assert_eq!(holdings[1].len(), 2);
        },
    );
}

#[test]
fn certificates_and_data_come_change_and_go() {
    in_own_process(
        "changes::certificates_and_data_come_change_and_go",
        THREE,
        |folder| {
            let bench = Bench::new(folder, THREE, 0);
            let data = Attributes::default()
                .with_number(CKA_CLASS, CKO_DATA)
                .with_flag(CKA_TOKEN, true)
                .with(CKA_LABEL, "notes")
                .with(CKA_VALUE, "secret text");
            // Seen once, so it may be away afterwards.
            bench.make(&pair(false, "k"));
            bench.pool.leaves("hsm3");
            let template = data.clone();
            let made = bench.make(&Operation::Create {
                template,
                near: None,
            });
            let journal =
                std::fs::read_to_string(folder.join("state/replicate/journal.jsonl")).unwrap();
            assert!(
                !journal.contains(&hex::encode("secret text")),
                "data stands in the journal"
            );
            let hsm3 = bench.pool.returns("hsm3");
            let told = bench.coordinator.catch_up(&*bench.pool, &hsm3).unwrap();
            assert_eq!(told.applied, 1, "{told:?}");
            let id = made[0].object.id;
            assert!(bench.everywhere().contains(&id));

            let template = Attributes::default().with(CKA_LABEL, "other notes");
            let object = id.into();
            bench
                .change(&Operation::SetAttributes { object, template })
                .unwrap();
            let renamed = bench.everywhere();
            assert!(!renamed.contains(&id), "its label is part of its name");
            let id = *renamed.iter().find(|id| id.class == Class::DATA).unwrap();
            bench
                .change(&Operation::Destroy { object: id.into() })
                .unwrap();
            assert_eq!(bench.everywhere().len(), 2);
            // A deleted object may be made again.
            bench.make(&Operation::Create {
                template: data,
                near: None,
            });
            assert_eq!(bench.everywhere().len(), 3);
        },
    );
}

#[test]
fn a_key_that_was_deleted_outside_is_reported_and_not_brought_back() {
    let name = "changes::a_key_that_was_deleted_outside_is_reported_and_not_brought_back";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        let made = bench.make(&secret(CKM_AES_KEY_GEN, 32, "aes"));
        let id = of_class(&made, Class::SECRET_KEY);
        let hsm2: Arc<dyn Token> = bench.token("hsm2");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        hsm2.execute(&Operation::Destroy { object: id.into() }, deadline)
            .unwrap();
        let member = bench.pool.returns("hsm2");
        let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
        assert_eq!(told.missing, vec![id]);
        assert!(bench.holdings()[1].is_empty());
    });
}

#[test]
fn data_that_was_deleted_or_renamed_meanwhile_is_not_owed_for_ever() {
    let name = "changes::data_that_was_deleted_or_renamed_meanwhile_is_not_owed_for_ever";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        // Seen once, so it may be away afterwards.
        bench.make(&pair(false, "k"));
        bench.pool.leaves("hsm3");
        let data = |label: &'static str| Operation::Create {
            template: Attributes::default()
                .with_number(CKA_CLASS, CKO_DATA)
                .with_flag(CKA_TOKEN, true)
                .with(CKA_LABEL, label)
                .with(CKA_VALUE, "text"),
            near: None,
        };
        let deleted = bench.make(&data("deleted"))[0].object.id;
        let renamed = bench.make(&data("renamed"))[0].object.id;
        let copied = bench.make(&data("copied"))[0].object.id;
        let label = |text: &'static str| Attributes::default().with(CKA_LABEL, text);
        bench
            .change(&Operation::SetAttributes {
                object: renamed.into(),
                template: label("by another name"),
            })
            .unwrap();
        bench.make(&Operation::Copy {
            object: copied.into(),
            template: label("a copy"),
        });
        for object in [deleted, copied] {
            bench
                .change(&Operation::Destroy {
                    object: object.into(),
                })
                .unwrap();
        }
        drop(bench);

        let bench = Bench::new(folder, THREE, 0);
        let hsm3 = bench.pool.returns("hsm3");
        let told = bench.coordinator.catch_up(&*bench.pool, &hsm3).unwrap();
        assert!(told.failed.is_empty(), "{:?}", told.failed);
        let serial = PresentMember::of(&hsm3).unwrap().serial;
        assert!(!bench.coordinator.owes(&serial));
        assert_eq!(
            bench.everywhere().len(),
            4,
            "a pair, a copy, and a new name"
        );
    });
}

#[test]
fn what_a_member_owes_of_one_object_it_does_in_order_or_not_yet() {
    let name = "changes::what_a_member_owes_of_one_object_it_does_in_order_or_not_yet";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        let notes = || Operation::Create {
            template: Attributes::default()
                .with_number(CKA_CLASS, CKO_DATA)
                .with_flag(CKA_TOKEN, true)
                .with(CKA_LABEL, "notes")
                .with(CKA_VALUE, "text"),
            near: None,
        };
        let id = bench.make(&notes())[0].object.id;
        bench.pool.leaves("hsm3");
        bench
            .change(&Operation::Destroy { object: id.into() })
            .unwrap();
        bench.make(&notes());
        let inner = bench.token("hsm3");
        let tamper = |operation: &Operation| {
            let destroys = matches!(operation, Operation::Destroy { .. });
            destroys.then(|| Err(Error::vendor("C_DestroyObject", CKR_FUNCTION_FAILED)))
        };
        let failing = Tampered {
            inner: Arc::clone(&inner),
            tamper,
        };
        bench.swap("hsm3", Arc::new(failing));
        let hsm3 = bench.pool.returns("hsm3");
        let told = bench.coordinator.catch_up(&*bench.pool, &hsm3).unwrap();
        assert_eq!((told.applied, told.failed.len()), (0, 1), "{told:?}");
        bench.swap("hsm3", inner);
        let hsm3 = bench.pool.returns("hsm3");
        let told = bench.coordinator.catch_up(&*bench.pool, &hsm3).unwrap();
        assert_eq!((told.applied, told.failed.len()), (2, 0), "{told:?}");
        assert_eq!(bench.everywhere(), [id]);
    });
}

/// They were one member: two replicas could never be made, and what was made was on the first alone.
#[test]
fn tokens_without_a_serial_number_are_as_many_members_as_are_configured() {
    let name = "changes::tokens_without_a_serial_number_are_as_many_members_as_are_configured";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 2);
        for name in THREE {
            bench.swap(name, Arc::new(WithoutSerial(bench.token(name))));
        }
        bench.make(&pair(false, "k"));
        assert_eq!(bench.everywhere().len(), 2);
        bench.pool.leaves("hsm3");
        let notes = |label: &'static str| Operation::Create {
            template: Attributes::default()
                .with_number(CKA_CLASS, CKO_DATA)
                .with_flag(CKA_TOKEN, true)
                .with(CKA_LABEL, label)
                .with(CKA_VALUE, "text"),
            near: None,
        };
        bench.make(&notes("while hsm3 was away"));
        // No member pays the debt of another.
        for (member, owed) in [("hsm1", 0), ("hsm2", 0), ("hsm3", 1)] {
            let member = bench.pool.returns(member);
            let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
            assert_eq!((told.applied, told.failed.len()), (owed, 0), "{told:?}");
        }
        assert_eq!(bench.everywhere().len(), 3);
    });
}
