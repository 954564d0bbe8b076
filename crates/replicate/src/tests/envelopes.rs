//! Envelopes of new keys: under which key, and for how long.

use super::bench::{Bench, of_class, pair, secret};
use super::in_own_process;
use crate::TRANSPORT_LABEL;
use hsmux_software::PublicKey;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Class, Mechanism, Object, Operation, Token};
use std::path::Path;
use std::time::{Duration, Instant};

const TWO: &[&str] = &["hsm1", "hsm2"];

/// The private halves of transport keys on a member.
fn transport_keys(bench: &Bench, member: &str) -> Vec<Object> {
    transport_keys_of(&*bench.token(member))
}

/// The same on a token.
pub(super) fn transport_keys_of(token: &dyn Token) -> Vec<Object> {
    let mut objects = token.objects().unwrap().objects.clone();
    objects.retain(|object| {
        let label = object.attributes.text(CKA_LABEL).unwrap_or_default();
        object.id.class == Class::PRIVATE_KEY && label.starts_with(TRANSPORT_LABEL)
    });
    objects
}

/// True if the journal has a key that a token's transport key opens.
pub(super) fn has_key_for(folder: &Path, transport: &Object) -> bool {
    let journal = std::fs::read_to_string(folder.join("state/replicate/journal.jsonl")).unwrap();
    journal.contains(&hex::encode(transport.id.name))
}

fn bits(transport: &Object) -> usize {
    let public = PublicKey::from_attributes(&transport.attributes).unwrap();
    public.bits()
}

#[test]
fn a_transport_key_unwraps_and_does_nothing_else() {
    in_own_process(
        "envelopes::a_transport_key_unwraps_and_does_nothing_else",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 0);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            for member in TWO {
                let keys = transport_keys(&bench, member);
                assert_eq!(keys.len(), 1, "{member}");
                assert!(bits(&keys[0]) >= 3072, "{member}");
                let may = |usage| keys[0].attributes.flag(usage) == Some(true);
                assert!(may(CKA_UNWRAP) && !may(CKA_DECRYPT));
                assert!(!may(CKA_SIGN) && !may(CKA_SIGN_RECOVER));
            }
        },
    );
}

#[test]
fn a_new_key_stays_in_the_journal_only_for_members_that_are_away() {
    in_own_process(
        "envelopes::a_new_key_stays_in_the_journal_only_for_members_that_are_away",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 1);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            let [one, two] = [0, 1].map(|at| transport_keys(&bench, TWO[at]).remove(0));
            assert!(!has_key_for(folder, &one) && !has_key_for(folder, &two));
            bench.pool.leaves("hsm2");
            bench.make(&pair(false, "later"));
            assert!(!has_key_for(folder, &one) && has_key_for(folder, &two));
            // Also where the program ends meanwhile.
            drop(bench);
            let bench = Bench::new(folder, TWO, 1);
            assert!(has_key_for(folder, &two));
            let member = bench.pool.returns("hsm2");
            let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
            assert!(told.applied == 1 && told.failed.is_empty(), "{told:?}");
            assert!(!has_key_for(folder, &two));
            assert_eq!(bench.everywhere().len(), 3);
        },
    );
}

#[test]
fn a_member_that_is_away_for_too_long_is_told_of_and_gets_no_key() {
    in_own_process(
        "envelopes::a_member_that_is_away_for_too_long_is_told_of_and_gets_no_key",
        TWO,
        |folder| {
            let Bench { pool, coordinator } = Bench::new(folder, TWO, 1);
            let bench = Bench {
                pool,
                coordinator: coordinator.with_envelope_life(Duration::ZERO),
            };
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            let two = transport_keys(&bench, "hsm2").remove(0);
            bench.pool.leaves("hsm2");
            let made = bench.make(&pair(false, "later"));
            let made = of_class(&made, Class::PRIVATE_KEY);
            // As the daemon does beside its work.
            assert_eq!(bench.coordinator.tidy(true), None);
            assert!(!has_key_for(folder, &two));
            let member = bench.pool.returns("hsm2");
            let told = bench.coordinator.catch_up(&*bench.pool, &member).unwrap();
            assert_eq!(told.applied, 0, "{told:?}");
            assert!(told.missing.contains(&made), "{told:?}");
            assert_eq!(bench.holdings()[1].len(), 1);
        },
    );
}

/// The envelope opens only with the key that is gone.
#[test]
fn a_token_that_was_initialised_anew_owes_no_key_of_before() {
    in_own_process(
        "envelopes::a_token_that_was_initialised_anew_owes_no_key_of_before",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 1);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            bench.pool.leaves("hsm2");
            let made = bench.make(&pair(false, "later"));
            let made = of_class(&made, Class::PRIVATE_KEY);
            let member = bench.pool.returns("hsm2");
            for key in transport_keys(&bench, "hsm2") {
                let operation = Operation::Destroy {
                    object: key.id.into(),
                };
                let deadline = Instant::now() + Duration::from_secs(60);
                bench.token("hsm2").execute(&operation, deadline).unwrap();
            }
            let catch_up = |bench: &Bench| bench.coordinator.catch_up(&*bench.pool, &member);
            let told = catch_up(&bench).unwrap();
            let why = told.failed[0].to_string();
            assert!(why.contains("replicate/transport.json"), "{why}");
            drop(bench);

            // As the message says it.
            std::fs::remove_file(folder.join("state/replicate/transport.json")).unwrap();
            let bench = Bench::new(folder, TWO, 1);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols both anew"));
            let told = catch_up(&bench).unwrap();
            assert!(told.failed.is_empty(), "{told:?}");
            assert!(told.missing.contains(&made), "{told:?}");
            let serial = &bench.token("hsm2").info().serial;
            assert!(!bench.coordinator.owes(serial));
        },
    );
}

/// A key that is named as the transport key of a member. The answer is its private half.
fn make_transport_key(
    bench: &Bench,
    member: &str,
    bits: u64,
    usages: impl IntoIterator<Item = (u64, bool)>,
) -> Object {
    let token = bench.token(member);
    let label = format!("{TRANSPORT_LABEL}{}", token.info().serial).into_bytes();
    let named = Attributes::default()
        .with_flag(CKA_TOKEN, true)
        .with(CKA_LABEL, label.clone())
        .with(CKA_ID, label);
    let private = named
        .clone()
        .with_flag(CKA_SENSITIVE, true)
        .with_flag(CKA_EXTRACTABLE, false)
        .with_flag(CKA_UNWRAP, true);
    let usages = usages.into_iter();
    let pair = Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: named
            .with_number(CKA_MODULUS_BITS, bits)
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
            .with_flag(CKA_WRAP, true)
            .with_flag(CKA_ENCRYPT, true),
        private: usages.fold(private, |all, (usage, may)| all.with_flag(usage, may)),
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let made = token.execute(&pair, deadline).unwrap();
    let made = made.into_objects().unwrap();
    let private = made
        .into_iter()
        .find(|made| made.object.id.class == Class::PRIVATE_KEY);
    private.unwrap().object
}

/// The usages of a good one.
const UNWRAPS_ONLY: [(u64, bool); 3] = [
    (CKA_DECRYPT, false),
    (CKA_SIGN, false),
    (CKA_SIGN_RECOVER, false),
];

/// As versions before have made it: RSA-2048, which deciphers as well.
fn enrol_as_before(bench: &Bench, member: &str) -> Object {
    let private = make_transport_key(bench, member, 2048, [(CKA_DECRYPT, true)]);
    let serial = bench.token(member).info().serial.clone();
    let unwraps = vec![CKM_AES_KEY_WRAP_PAD, CKM_AES_KEY_WRAP];
    let transport = &bench.coordinator.transport;
    transport.pin_as_before(&serial, member, &private, unwraps);
    private
}

/// By a raw RSA signature, whoever has the PIN would open an envelope.
#[test]
fn a_key_that_signs_is_no_transport_key() {
    in_own_process(
        "envelopes::a_key_that_signs_is_no_transport_key",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 0);
            let [signing, recovering, other] =
                [(true, false), (false, true), (false, false)].map(|(signs, recovers)| {
                    let usages = [
                        (CKA_DECRYPT, false),
                        (CKA_SIGN, signs),
                        (CKA_SIGN_RECOVER, recovers),
                    ];
                    make_transport_key(&bench, TWO[0], 3072, usages)
                });
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            let transport = &bench.coordinator.transport;
            assert!(transport.is_ours(other.id) && !transport.is_ours(signing.id));
            assert!(!transport.is_ours(recovering.id));
        },
    );
}

/// The token makes longer ones.
#[test]
fn a_short_key_is_no_transport_key() {
    in_own_process(
        "envelopes::a_short_key_is_no_transport_key",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 0);
            let short = make_transport_key(&bench, TWO[0], 2048, UNWRAPS_ONLY);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "enrols"));
            let transport = &bench.coordinator.transport;
            assert!(!transport.is_ours(short.id));
            let pinned = |key: &&Object| transport.is_ours(key.id);
            let keys = transport_keys(&bench, TWO[0]);
            let [ours] = keys.iter().filter(pinned).collect::<Vec<_>>()[..] else {
                panic!("{keys:?}");
            };
            assert_eq!(bits(ours), 3072);
        },
    );
}

/// Pinned before anybody looked whether it recovers signatures, and how long it is.
#[test]
fn a_pinned_key_is_verified_by_the_rules_of_now() {
    in_own_process(
        "envelopes::a_pinned_key_is_verified_by_the_rules_of_now",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 1);
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "seen"));
            let good = transport_keys(&bench, TWO[1]).remove(0);
            let usages = [
                (CKA_DECRYPT, false),
                (CKA_SIGN, false),
                (CKA_SIGN_RECOVER, true),
            ];
            let bad = make_transport_key(&bench, TWO[0], 3072, usages);
            for (member, key) in [(TWO[0], &bad), (TWO[1], &good)] {
                let serial = bench.token(member).info().serial.clone();
                let unwraps = vec![CKM_AES_KEY_WRAP_PAD, CKM_AES_KEY_WRAP];
                let transport = &bench.coordinator.transport;
                transport.pin_with_hash(&serial, member, key, unwraps, CKM_SHA_1);
                assert!(transport.pin(&serial).unwrap().is_old());
            }
            for member in TWO {
                let returned = bench.pool.returns(member);
                bench.coordinator.catch_up(&*bench.pool, &returned).unwrap();
                let serial = bench.token(member).info().serial.clone();
                assert!(!bench.coordinator.transport.pin(&serial).unwrap().is_old());
            }
            let transport = &bench.coordinator.transport;
            assert!(!transport.is_ours(bad.id) && transport.is_ours(good.id));
        },
    );
}

#[test]
fn transport_keys_of_before_are_replaced_and_no_debt_is_lost() {
    in_own_process(
        "envelopes::transport_keys_of_before_are_replaced_and_no_debt_is_lost",
        TWO,
        |folder| {
            let bench = Bench::new(folder, TWO, 1);
            // Both have been seen; what was pinned then is replaced by what versions before have pinned.
            bench.make(&secret(CKM_AES_KEY_GEN, 32, "seen"));
            let old = [TWO[0], TWO[1]].map(|member| enrol_as_before(&bench, member));
            bench.pool.leaves("hsm2");
            let made = bench.make(&secret(CKM_AES_KEY_GEN, 32, "later"))[0]
                .object
                .id;
            assert!(has_key_for(folder, &old[1]));
            for (member, old) in TWO.iter().zip(&old) {
                let returned = bench.pool.returns(member);
                let told = bench.coordinator.catch_up(&*bench.pool, &returned).unwrap();
                assert!(
                    told.failed.is_empty() && told.missing.is_empty(),
                    "{told:?}"
                );
                let keys = transport_keys(&bench, member);
                assert_eq!(keys.len(), 1, "{member}");
                assert!(bits(&keys[0]) >= 3072 && keys[0].id != old.id, "{member}");
                // Its public half is gone as well.
                let objects = bench.token(member).objects().unwrap();
                let of_old = |object: &&Object| object.id.name == old.id.name;
                assert_eq!(objects.objects.iter().filter(of_old).count(), 0, "{member}");
            }
            assert!(bench.everywhere().contains(&made));
            // The new ones carry keys.
            bench.make(&pair(false, "after"));
            assert_eq!(bench.everywhere().len(), 4);
        },
    );
}
