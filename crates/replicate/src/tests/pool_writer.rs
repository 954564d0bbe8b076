//! A pool that writes through the coordinator.

use super::bench::{open, pair, secret};
use super::in_own_process;
use crate::{CloneOutcome, Hold, Selection, Writer, start};
use hsmux_pool::{Options, Pool, Seat};
use hsmux_token::ck::*;
use hsmux_token::{
    Attributes, Batch, Class, Error, Hash, Kind, Mechanism, ObjectId, ObjectRef, Operation,
    Outcome, Snapshot, Token, TokenInfo, Verb,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(super) const THREE: &[&str] = &["hsm1", "hsm2", "hsm3"];

pub(super) fn seat(folder: &Path, name: &str, there: &Arc<AtomicBool>) -> Seat {
    let (folder, member) = (PathBuf::from(folder), name.to_owned());
    let there = Arc::clone(there);
    let connector = move || {
        if there.load(Ordering::SeqCst) {
            Ok(open(&folder, &member).token.unwrap())
        } else {
            Err(Error::lost("unplugged"))
        }
    };
    Seat {
        name: name.to_owned(),
        member: name.to_owned(),
        weight: 1,
        timeout: Duration::from_secs(60),
        connector: Arc::new(connector),
    }
}

pub(super) fn pool(
    folder: &Path,
    away: &Arc<AtomicBool>,
    replicas: usize,
) -> (Arc<Pool>, Arc<Writer>) {
    let options = Options {
        state: folder.join("state"),
        replicas,
        ..Options::default()
    };
    let always = Arc::new(AtomicBool::new(true));
    let seats = THREE.iter().map(|name| match *name {
        "hsm3" => seat(folder, name, away),
        name => seat(folder, name, &always),
    });
    start(options, seats.collect(), Hold::Always, None).unwrap()
}

/// The same without hsm3.
fn two(folder: &Path) -> (Arc<Pool>, Arc<Writer>) {
    let options = Options {
        state: folder.join("state"),
        ..Options::default()
    };
    let always = Arc::new(AtomicBool::new(true));
    let seats = THREE[..2].iter().map(|name| seat(folder, name, &always));
    start(options, seats.collect(), Hold::Always, None).unwrap()
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

pub(super) fn make(pool: &Pool, operation: &Operation) -> Vec<ObjectId> {
    let made = pool
        .execute(operation, soon())
        .unwrap()
        .into_objects()
        .unwrap();
    made.iter().map(|made| made.object.id).collect()
}

/// The members whose copy of an object serves, once there are so many.
pub(super) fn serving(pool: &Pool, id: ObjectId, wanted: usize) -> Vec<String> {
    let end = soon();
    loop {
        let catalogue = pool.catalogue();
        let entry = catalogue.entries.get(&id);
        let members: Vec<String> = entry.map_or_else(Vec::new, |entry| {
            entry.members().iter().map(ToString::to_string).collect()
        });
        if members.len() == wanted || Instant::now() > end {
            return members;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_made_through_the_pool_serves_on_every_member() {
    let name = "pool_writer::what_is_made_through_the_pool_serves_on_every_member";
    in_own_process(name, THREE, |folder| {
        let there = Arc::new(AtomicBool::new(true));
        let (pool, _writer) = pool(folder, &there, 2);
        let made = make(&pool, &pair(false, "web"));
        let private = *made
            .iter()
            .find(|id| id.class == Class::PRIVATE_KEY)
            .unwrap();
        assert_eq!(serving(&pool, private, 3).len(), 3);
        let shown = pool.objects().unwrap();
        assert_eq!(shown.objects.len(), 2, "transport keys are not shown");
        let sign = Operation::Use {
            verb: Verb::Sign,
            key: private.into(),
            mechanism: Mechanism::plain(CKM_ECDSA),
            data: hsmux_software::digest(Hash::Sha256, b"text").into(),
        };
        pool.execute(&sign, soon()).unwrap();
        pool.execute(
            &Operation::Destroy {
                object: private.into(),
            },
            soon(),
        )
        .unwrap();
        assert_eq!(pool.objects().unwrap().objects.len(), 1);
        assert_eq!(
            pool.execute(&sign, soon()).unwrap_err().kind(),
            Kind::UnknownObject
        );
    });
}

#[test]
fn a_seat_that_connects_later_has_caught_up_when_it_serves() {
    let name = "pool_writer::a_seat_that_connects_later_has_caught_up_when_it_serves";
    in_own_process(name, THREE, |folder| {
        let there = Arc::new(AtomicBool::new(true));
        let (first, writer) = pool(folder, &there, 2);
        let deleted = make(&first, &secret(CKM_AES_KEY_GEN, 32, "deleted"))[0];
        drop((first, writer));
        there.store(false, Ordering::SeqCst);
        let (second, _writer) = pool(folder, &there, 2);
        let made = make(&second, &secret(CKM_AES_KEY_GEN, 32, "made"))[0];
        second
            .execute(
                &Operation::Destroy {
                    object: deleted.into(),
                },
                soon(),
            )
            .unwrap();
        assert_eq!(serving(&second, made, 2).len(), 2);
        there.store(true, Ordering::SeqCst);
        second.resume("hsm3").unwrap();
        assert_eq!(serving(&second, made, 3).len(), 3);
        assert!(second.catalogue().get(&deleted).is_none());
        assert_eq!(
            open(folder, "hsm3")
                .token
                .unwrap()
                .objects()
                .unwrap()
                .objects
                .len(),
            3,
            "its transport pair and the new key"
        );
    });
}

#[test]
fn the_status_says_who_owes_what_until_it_is_done_or_nobody_has_to() {
    let name = "pool_writer::the_status_says_who_owes_what_until_it_is_done_or_nobody_has_to";
    in_own_process(name, THREE, |folder| {
        let there = Arc::new(AtomicBool::new(true));
        let (before, writer) = pool(folder, &there, 3);
        make(
            &before,
            &secret(CKM_AES_KEY_GEN, 32, "by which hsm3 is known"),
        );
        drop((before, writer));
        there.store(false, Ordering::SeqCst);
        let (first, writer) = pool(folder, &there, 2);
        let owed = |pool: &Pool| -> Vec<(String, usize)> {
            let debts = pool.status().debts.into_iter();
            debts.map(|debt| (debt.member, debt.changes)).collect()
        };
        assert_eq!(owed(&first), []);
        let made = make(&first, &secret(CKM_AES_KEY_GEN, 32, "made"))[0];
        make(&first, &secret(CKM_AES_KEY_GEN, 32, "stays"));
        assert_eq!(owed(&first), [("hsm3".to_owned(), 2)]);
        let object = made.into();
        let destroy = Operation::Destroy { object };
        first.execute(&destroy, soon()).unwrap();
        let left = [("hsm3".to_owned(), 3)];
        let why = "one key, and that the other is gone, also if it has half of it";
        assert_eq!(owed(&first), left, "{why}");
        drop((first, writer));

        let (second, writer) = pool(folder, &there, 2);
        assert_eq!(owed(&second), left, "also after a restart");
        drop((second, writer));

        // No member of the two is hsm3 by another name.
        let (third, writer) = two(folder);
        assert_eq!(owed(&third), []);
        drop((third, writer));
        there.store(true, Ordering::SeqCst);
        let (fourth, _writer) = pool(folder, &there, 2);
        assert_eq!(owed(&fourth), []);
        assert!(fourth.catalogue().get(&made).is_none(), "it stays deleted");
    });
}

#[test]
fn a_session_key_becomes_a_token_object_everywhere_and_others_are_derived() {
    let name =
        "pool_writer::a_session_key_becomes_a_token_object_everywhere_and_others_are_derived";
    in_own_process(name, THREE, |folder| {
        let there = Arc::new(AtomicBool::new(true));
        let (pool, _writer) = pool(folder, &there, 3);
        let template = Attributes::default()
            .with_flag(CKA_TOKEN, false)
            .with_flag(CKA_EXTRACTABLE, true)
            .with_flag(CKA_SENSITIVE, true)
            .with_number(CKA_VALUE_LEN, 16);
        let generate = Operation::Generate {
            mechanism: Mechanism::plain(CKM_AES_KEY_GEN),
            template,
        };
        let made = pool
            .execute(&generate, soon())
            .unwrap()
            .into_objects()
            .unwrap();
        let session = ObjectRef::Session(made[0].session.unwrap());
        let template = Attributes::default()
            .with_flag(CKA_TOKEN, true)
            .with_flag(CKA_DERIVE, true)
            .with(CKA_LABEL, "kept");
        let copy = Operation::Copy {
            object: session,
            template,
        };
        let kept = make(&pool, &copy)[0];
        assert_eq!(serving(&pool, kept, 3).len(), 3);
        let derive = Operation::Derive {
            key: kept.into(),
            mechanism: Mechanism {
                kind: CKM_AES_ECB_ENCRYPT_DATA,
                params: hsmux_token::Params::StringData(vec![1; 32].into()),
            },
            template: Attributes::default()
                .with_number(CKA_CLASS, CKO_SECRET_KEY)
                .with_number(CKA_KEY_TYPE, CKK_AES)
                .with_number(CKA_VALUE_LEN, 32)
                .with_flag(CKA_TOKEN, true)
                .with(CKA_LABEL, "derived"),
        };
        let derived = make(&pool, &derive)[0];
        assert_eq!(serving(&pool, derived, 3).len(), 3);
    });
}

#[test]
fn keys_of_one_member_are_cloned_within_the_pool() {
    let name = "pool_writer::keys_of_one_member_are_cloned_within_the_pool";
    in_own_process(name, THREE, |folder| {
        let mut generate = secret(CKM_AES_KEY_GEN, 32, "alone");
        if let Operation::Generate { template, .. } = &mut generate {
            template.set_flag(CKA_EXTRACTABLE, true);
        }
        let token = open(folder, "hsm2").token.unwrap();
        let made = token
            .execute(&generate, soon())
            .unwrap()
            .into_objects()
            .unwrap();
        drop(token);
        let there = Arc::new(AtomicBool::new(true));
        let (pool, writer) = pool(folder, &there, 2);
        let id = made[0].object.id;
        assert_eq!(serving(&pool, id, 1), ["hsm2"]);
        let all = Selection::default();
        let cloned = writer.clone_keys("hsm2", &[], &all, None, &|_| ()).unwrap();
        assert!(
            cloned
                .iter()
                .all(|one| matches!(one.outcome, CloneOutcome::Copied)),
            "{cloned:?}"
        );
        assert_eq!(serving(&pool, id, 3).len(), 3);
    });
}

/// Counts how often all objects of a token are read.
struct Counted {
    token: Arc<dyn Token>,
    reads: Arc<AtomicUsize>,
}

impl Token for Counted {
    fn info(&self) -> Arc<TokenInfo> {
        self.token.info()
    }

    fn objects(&self) -> hsmux_token::Result<Arc<Snapshot>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.token.objects()
    }

    fn submit(&self, batch: Batch) {
        self.token.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> hsmux_token::Result<Outcome> {
        self.token.execute(operation, deadline)
    }
}

#[test]
fn a_new_key_is_shown_and_proved_without_reading_the_others() {
    let name = "pool_writer::a_new_key_is_shown_and_proved_without_reading_the_others";
    in_own_process(name, THREE, |folder| {
        let reads: Vec<_> = THREE
            .iter()
            .map(|_| Arc::new(AtomicUsize::new(0)))
            .collect();
        let seats = THREE.iter().zip(&reads).map(|(name, reads)| {
            let (folder, reads) = (PathBuf::from(folder), Arc::clone(reads));
            let connector = move || -> hsmux_token::Result<Arc<dyn Token>> {
                let token = open(&folder, name).token.unwrap();
                let reads = Arc::clone(&reads);
                Ok(Arc::new(Counted { token, reads }))
            };
            Seat {
                name: (*name).to_owned(),
                member: (*name).to_owned(),
                weight: 1,
                timeout: Duration::from_secs(60),
                connector: Arc::new(connector),
            }
        });
        let options = Options {
            state: folder.join("state"),
            replicas: 3,
            ..Options::default()
        };
        let (pool, _writer) = start(options, seats.collect(), Hold::Always, None).unwrap();
        let counts = || -> Vec<usize> {
            let counts = reads.iter().map(|reads| reads.load(Ordering::SeqCst));
            counts.collect()
        };
        let end = soon();
        while counts().contains(&0) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(counts(), [1, 1, 1], "connecting reads once");
        // The first change makes the transport keys, for which it looks on each token.
        make(&pool, &secret(CKM_AES_KEY_GEN, 32, "first"));
        let before = counts();
        let private = *make(&pool, &pair(false, "web"))
            .iter()
            .find(|id| id.class == Class::PRIVATE_KEY)
            .unwrap();
        let secret = make(&pool, &secret(CKM_AES_KEY_GEN, 32, "second"))[0];
        for id in [private, secret] {
            assert_eq!(serving(&pool, id, 3).len(), 3);
            let destroy = Operation::Destroy { object: id.into() };
            pool.execute(&destroy, soon()).unwrap();
            assert!(!pool.catalogue().entries.contains_key(&id));
        }
        assert_eq!(counts(), before);
    });
}
