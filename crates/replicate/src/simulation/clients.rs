//! Which change a client asks for next.

use hsmux_token::ck::{CKM_AES_KEY_GEN, CKM_GENERIC_SECRET_KEY_GEN};
use hsmux_token::{Class, ObjectId};

use super::change::{Change, Names};
use super::expected::{Expected, Presence};
use hsmux_token::fake::Random;

/// So many objects are there at a time, or a few more.
const OBJECTS: u64 = 8;

/// The next change. `number` was not used before.
pub(super) fn ask(expected: &Expected, random: &mut Random, number: u64) -> Change {
    let known = expected.settled(Presence::There);
    if random.below(OBJECTS) >= known.len() as u64 {
        return make(expected, random, number);
    }
    let object = *random.pick(&known);
    match random.below(6) {
        0 | 1 => Change::Destroy { object },
        2 | 3 => set(expected, random, object, number),
        4 => copy(expected, random, object, number),
        _ => make(expected, random, number),
    }
}

fn make(expected: &Expected, random: &mut Random, number: u64) -> Change {
    let label = format!("object {number}");
    let id = match random.below(3) {
        0 => number.to_be_bytes().to_vec(),
        _ => Vec::new(),
    };
    match random.below(5) {
        0 | 1 => create(expected, random, &label),
        2 => Change::Generate {
            mechanism: CKM_AES_KEY_GEN,
            names: Names::new(&label, &id),
        },
        // A client's CKA_ID may be that of another key, so what is left of a failed C_UnwrapKey is not removed.
        3 => Change::Generate {
            mechanism: CKM_GENERIC_SECRET_KEY_GEN,
            names: Names::new(&label, b""),
        },
        _ => Change::GeneratePair {
            names: Names::new(&label, &id),
        },
    }
}

/// A new data object; or one that is there, or was there once.
fn create(expected: &Expected, random: &mut Random, label: &str) -> Change {
    let presence = *random.pick(&[Presence::There, Presence::Gone]);
    let mut known = expected.settled(presence);
    known.retain(|id| id.class == Class::DATA);
    if random.one_in(3) && !known.is_empty() {
        let (value, names) = expected.data(*random.pick(&known));
        return Change::Create { value, names };
    }
    Change::Create {
        value: format!("value of {label}").into_bytes(),
        names: Names::new(label, b""),
    }
}

/// Another name. A secret key is renamed by its CKA_ID, data by its label; it may also be the name that it had once.
fn set(expected: &Expected, random: &mut Random, object: ObjectId, number: u64) -> Change {
    let mut names = expected.names(object);
    let before = expected.names_before(object);
    let others = expected.names_of_others(object);
    if random.one_in(10) && !others.is_empty() {
        // Refused.
        names = random.pick(&others).clone();
    } else if random.one_in(4) && !before.is_empty() {
        names = random.pick(&before).clone();
    } else if object.class == Class::SECRET_KEY && random.one_in(2) {
        names.id = number.to_be_bytes().to_vec();
    } else {
        names.label = format!("renamed {number}").into_bytes();
    }
    Change::Set {
        object,
        becomes: expected.id(object, &names),
        names,
    }
}

/// A copy by another name, if there can be one.
fn copy(expected: &Expected, random: &mut Random, object: ObjectId, number: u64) -> Change {
    let mut names = expected.names(object);
    match object.class {
        Class::DATA => names.label = format!("copy {number}").into_bytes(),
        Class::SECRET_KEY => names.id = number.to_be_bytes().to_vec(),
        _ => return set(expected, random, object, number),
    }
    Change::Copy {
        model: object,
        copy: expected.id(object, &names),
        names,
    }
}
