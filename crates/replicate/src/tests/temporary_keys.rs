//! New keys on their way: session objects that could leave their token, and do not outlive the change.

use super::bench::{Tampered, pair, secret};
use super::{Bench, in_own_process};
use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{Class, Made, ObjectId, ObjectRef, Operation, Outcome, SessionObject};
use std::sync::Arc;
use std::time::{Duration, Instant};

const THREE: &[&str] = &["hsm1", "hsm2", "hsm3"];

/// Session objects of a token.
#[derive(Default)]
struct TemporaryObject {
    /// The current ones.
    here: Vec<SessionObject>,
    /// How many there ever were that could be taken out.
    extractable: usize,
}

impl TemporaryObject {
    fn note(&mut self, operation: &Operation, outcome: &Outcome) {
        match (operation, outcome) {
            (
                Operation::Destroy {
                    object: ObjectRef::Session(gone),
                },
                _,
            ) => self.here.retain(|object| object != gone),
            (_, Outcome::Objects(made)) if operation.makes_session_objects() => {
                self.here
                    .extend(made.iter().filter_map(|made| made.session));
                let can_leave =
                    |made: &&Made| made.object.attributes.flag(CKA_EXTRACTABLE) == Some(true);
                self.extractable += made.iter().filter(can_leave).count();
            }
            _ => {}
        }
    }
}

/// Takes note of what becomes of a member's session objects from now on.
fn watched(bench: &Bench, name: &str) -> Arc<Mutex<TemporaryObject>> {
    let inner = bench.token(name);
    let passing = Arc::new(Mutex::new(TemporaryObject::default()));
    let (token, noted) = (Arc::clone(&inner), Arc::clone(&passing));
    let tamper = move |operation: &Operation| {
        let deadline = Instant::now() + Duration::from_secs(120);
        let result = token.execute(operation, deadline);
        if let Ok(outcome) = &result {
            noted.lock().note(operation, outcome);
        }
        Some(result)
    };
    bench.swap(name, Arc::new(Tampered { inner, tamper }));
    passing
}

#[test]
fn no_session_object_of_a_new_key_is_left() {
    let name = "temporary_keys::no_session_object_of_a_new_key_is_left";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        let members: Vec<_> = THREE.iter().map(|name| watched(&bench, name)).collect();
        let operations = [
            pair(true, "rsa"),
            pair(false, "ec"),
            secret(CKM_AES_KEY_GEN, 32, "aes"),
            secret(CKM_GENERIC_SECRET_KEY_GEN, 32, "mac"),
        ];
        for operation in &operations {
            bench.make(operation);
            for member in &members {
                let left = member.lock().here.clone();
                assert!(left.is_empty(), "{}: {left:?}", operation.call());
            }
        }
        let extractable: usize = members.iter().map(|m| m.lock().extractable).sum();
        assert!(
            extractable >= operations.len(),
            "{extractable}: were they wrapped?"
        );
    });
}

/// Somebody who has looked while it was made would know it by that name, also after it was deleted.
#[test]
fn the_name_that_a_key_has_while_it_is_made_is_told_to_be_gone() {
    let name = "temporary_keys::the_name_that_a_key_has_while_it_is_made_is_told_to_be_gone";
    in_own_process(name, THREE, |folder| {
        let bench = Bench::new(folder, THREE, 0);
        // SoftHSM lets a generic secret encipher if nothing is said of it.
        for enciphers in [false, true] {
            let mut operation = secret(CKM_GENERIC_SECRET_KEY_GEN, 32, "mac");
            if let Operation::Generate { template, .. } = &mut operation {
                *template = std::mem::take(template)
                    .with_flag(CKA_ENCRYPT, enciphers)
                    .with_flag(CKA_SIGN, true);
            }
            let made = bench.make(&operation);
            let key = &made[0].object;
            let bytes = |kind| key.attributes.get(kind).unwrap_or_default();
            let (id, label) = (bytes(CKA_ID), bytes(CKA_LABEL));
            for member in THREE {
                let serial = &bench.token(member).info().serial;
                let passing = ObjectId::of_unidentified(Class::SECRET_KEY, serial, id, label);
                assert_ne!(passing, key.id);
                let gone = (member.to_string(), passing);
                assert!(bench.pool.gone.lock().contains(&gone), "{member}");
            }
        }
    });
}
