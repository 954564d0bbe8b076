//! Changes of a token that holds many objects.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_pool::{Options, Pool};
use hsmux_replicate::{self as replicate, Hold, Writer};
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Class, Error, Kind, Made, Mechanism, Object, ObjectId, ObjectRef, Operation,
    Outcome, Result, Token, ck,
};

use crate::vault::*;

/// How many objects one operation of the pool has read, one by one, on all tokens.
static SINGLE_READS: AtomicUsize = AtomicUsize::new(0);

/// 1,000 public keys, which need no proof.
fn thousand() -> Vec<Object> {
    let public = |number: u64| Object {
        id: ObjectId::of_public_key(Class::PUBLIC_KEY, &number.to_be_bytes()),
        attributes: Attributes::default()
            .with_number(ck::CKA_CLASS, ck::CKO_PUBLIC_KEY)
            .with(ck::CKA_LABEL, format!("key {number}")),
    };
    (0..1000).map(public).collect()
}

fn new_key() -> Object {
    Object {
        id: ObjectId::of_secret_key(ck::CKK_AES, b"new", b"kcv"),
        ..secret(32)
    }
}

/// A token that makes one key, and remembers what is made, changed and destroyed.
fn full(name: &str) -> Builder {
    let objects = thousand();
    let held = objects.iter().map(|object| (object.id, object.clone()));
    let held: Mutex<HashMap<ObjectId, Object>> = Mutex::new(held.collect());
    FakeToken::builder(name)
        .objects(objects)
        .answer(move |operation| answer(&mut held.lock(), operation))
}

fn answer(held: &mut HashMap<ObjectId, Object>, operation: &Operation) -> Result<Outcome> {
    let absent = || Error::request(Kind::UnknownObject, "no such object");
    let shown = |object: &Object| {
        let (session, object) = (None, object.clone());
        Ok(Outcome::Objects(vec![Made { session, object }]))
    };
    match operation {
        Operation::Generate { .. } => {
            held.insert(new_key().id, new_key());
            shown(&new_key())
        }
        Operation::Read {
            object: ObjectRef::Token(id),
        } => {
            SINGLE_READS.fetch_add(1, Ordering::SeqCst);
            shown(held.get(id).ok_or_else(absent)?)
        }
        Operation::SetAttributes {
            object: ObjectRef::Token(id),
            template,
        } => {
            let object = held.get_mut(id).ok_or_else(absent)?;
            for change in &template.0 {
                object.attributes.set(change.kind, change.value.to_vec());
            }
            Ok(Outcome::Done)
        }
        Operation::Destroy {
            object: ObjectRef::Token(id),
        } => held.remove(id).map(|_| Outcome::Done).ok_or_else(absent),
        other => Err(Error::vendor(other.call(), ck::CKR_FUNCTION_NOT_SUPPORTED)),
    }
}

struct Rig {
    pool: Arc<Pool>,
    _writer: Arc<Writer>,
    supplies: Vec<Arc<Supply>>,
    _state: tempfile::TempDir,
}

impl Rig {
    fn of(names: &[&'static str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let options = Options {
            state: state.path().to_owned(),
            ..Options::default()
        };
        let supply = |name: &&'static str| {
            let name = *name;
            Supply::of(move || full(name))
        };
        let supplies: Vec<_> = names.iter().map(supply).collect();
        let seats = supplies.iter().zip(names).map(|(s, name)| s.seat(name));
        let (pool, writer) =
            replicate::start(options, seats.collect(), Hold::Always, None).unwrap();
        Self {
            pool,
            _writer: writer,
            supplies,
            _state: state,
        }
    }

    /// Runs a change, and sees that no member is asked for all that it holds.
    fn change(&self, operation: &Operation) -> Outcome {
        let single = SINGLE_READS.load(Ordering::SeqCst);
        let outcome = self.pool.execute(operation, in_seconds(60)).unwrap();
        for supply in &self.supplies {
            let token = supply.last();
            assert_eq!(token.reads(), 1, "{operation:?} on {}", token.info().label);
        }
        let single = SINGLE_READS.load(Ordering::SeqCst) - single;
        assert!(single <= 2 * self.supplies.len(), "{operation:?}: {single}");
        outcome
    }

    fn shown(&self, id: ObjectId) -> Option<Object> {
        let shown = self.pool.catalogue();
        shown.get(&id).map(|entry| Object::clone(&entry.object))
    }
}

/// One test: what it counts is counted for the process.
#[test]
fn a_change_in_a_token_of_a_thousand_keys_reads_no_more_than_what_it_changes() {
    let alone = Rig::of(&["alone"]);
    let made = alone.change(&Operation::Generate {
        mechanism: Mechanism::plain(ck::CKM_AES_KEY_GEN),
        template: Attributes::default().with_flag(ck::CKA_TOKEN, true),
    });
    let new = made.into_objects().unwrap()[0].object.id;
    assert_eq!(alone.shown(new), Some(new_key()));
    alone.change(&Operation::Destroy { object: new.into() });
    assert_eq!(alone.shown(new), None);

    let three = Rig::of(&["one", "two", "three"]);
    let (changed, deleted) = (thousand()[17].id, thousand()[18].id);
    three.change(&Operation::SetAttributes {
        object: changed.into(),
        template: Attributes::default().with(ck::CKA_LABEL, "renamed"),
    });
    let label = three.shown(changed).unwrap().attributes.text(ck::CKA_LABEL);
    assert_eq!(label.as_deref(), Some("renamed"));
    three.change(&Operation::Destroy {
        object: deleted.into(),
    });
    assert_eq!(three.shown(deleted), None);
    assert_eq!(three.pool.objects().unwrap().objects.len(), 999);
}
