//! What the answers of the coordinator have promised.

use std::collections::{BTreeMap, BTreeSet};

use hsmux_config::ENVELOPE_LIFE;
use hsmux_token::{Class, Made, ObjectId};

use super::change::{Change, Names, Nature};

/// Whether an object is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    There,
    Gone,
    /// The daemon died before it answered: on all members, or on none.
    Unclear,
}

/// One object, by its name.
#[derive(Clone)]
pub(super) struct ExpectedObject {
    pub presence: Presence,
    pub nature: Nature,
    /// One, unless the daemon died before it answered.
    pub names: Vec<Names>,
    pub exceptions: Exceptions,
    /// Tokens that have had it, and were not replaced since.
    pub held: BTreeSet<String>,
    pub is_key: bool,
    /// When the key was made.
    pub made_at: u64,
}

/// Tokens of which less is promised, by their serial numbers.
#[derive(Clone, Default, Debug)]
pub(super) struct Exceptions {
    /// It was initialised anew since the object was made; or the key could not be kept for it; or it failed while a key was
    /// planned that enough others got.
    pub may_lack: BTreeSet<String>,
    /// It was away when the object changed, and the journal did not know it: it does not hear of that change.
    pub unseen: BTreeSet<String>,
}

impl ExpectedObject {
    /// Whether nobody promised that a token has it now.
    pub fn may_lack(&self, serial: &str, now: u64) -> bool {
        let Exceptions { may_lack, unseen } = &self.exceptions;
        // The journal kept the key for a token that was away, but not for so long.
        let is_expired = self.is_key
            && self.made_at + ENVELOPE_LIFE.as_secs() <= now
            && !self.held.contains(serial);
        is_expired || may_lack.contains(serial) || unseen.contains(serial)
    }
}

/// Keys that were made when the daemon died. Nobody knows their names.
pub(super) struct Unanswered {
    pub names: Names,
    pub is_pair: bool,
    pub exceptions: Exceptions,
    pub made_at: u64,
}

#[derive(Default)]
pub(super) struct Expected {
    pub objects: BTreeMap<ObjectId, ExpectedObject>,
    pub unanswered: Vec<Unanswered>,
    /// Two names of one object, of which it has one.
    pub either: Vec<(ObjectId, ObjectId)>,
    /// Names that objects had before.
    before: BTreeMap<ObjectId, Vec<Names>>,
}

impl Expected {
    /// Objects about which nothing is unclear.
    pub fn settled(&self, presence: Presence) -> Vec<ObjectId> {
        let is_settled =
            |object: &ExpectedObject| object.presence == presence && object.names.len() == 1;
        let all = self.objects.iter().filter(|(_, object)| is_settled(object));
        all.map(|(id, _)| *id).collect()
    }

    pub fn names(&self, object: ObjectId) -> Names {
        self.objects[&object].names[0].clone()
    }

    pub fn data(&self, object: ObjectId) -> (Vec<u8>, Names) {
        match &self.objects[&object].nature {
            Nature::Data { value } => (value.clone(), self.names(object)),
            _ => panic!("{object:?} is no data"),
        }
    }

    /// Names that it had once, and that no object has now.
    pub fn names_before(&self, object: ObjectId) -> Vec<Names> {
        let mut names = self.before.get(&object).cloned().unwrap_or_default();
        names.retain(|names| {
            let id = self.id(object, names);
            let other = self.objects.get(&id);
            id == object || other.is_none_or(|other| other.presence == Presence::Gone)
        });
        names
    }

    /// Names that would make it another object that is there.
    pub fn names_of_others(&self, object: ObjectId) -> Vec<Names> {
        let all = self.settled(Presence::There).into_iter();
        let others = all.filter(|other| *other != object && other.class == object.class);
        let names = others.map(|other| (other, self.names(other)));
        let same = names.filter(|(other, names)| self.id(object, names) == *other);
        same.map(|(_, names)| names).collect()
    }

    /// What an object is named if it is called by these.
    pub fn id(&self, object: ObjectId, names: &Names) -> ObjectId {
        self.objects[&object].nature.id(names, object)
    }

    /// A change was answered with success.
    pub fn done(&mut self, change: &Change, made: &[Made], now: u64, exceptions: &Exceptions) {
        match change {
            Change::Generate { .. } | Change::GeneratePair { .. } => {
                for made in made {
                    let (id, attributes) = (made.object.id, &made.object.attributes);
                    let object = ExpectedObject {
                        presence: Presence::There,
                        nature: Nature::of(id.class, attributes),
                        names: vec![Names::of(attributes)],
                        exceptions: exceptions.clone(),
                        held: BTreeSet::new(),
                        is_key: true,
                        made_at: now,
                    };
                    self.objects.insert(id, object);
                }
            }
            Change::Destroy { object } => {
                let object = self.objects.get_mut(object).expect("it is known");
                object.presence = Presence::Gone;
                object.exceptions.unseen.extend(exceptions.unseen.clone());
            }
            Change::Set {
                object, becomes, ..
            } => {
                let before = self.names(*object);
                self.before.entry(*becomes).or_default().push(before);
                let after = self.changed(change, now, exceptions);
                let old = self.objects.get_mut(object).expect("it is known");
                old.presence = Presence::Gone;
                old.exceptions.unseen.extend(exceptions.unseen.clone());
                self.objects.insert(*becomes, after);
            }
            Change::Create { .. } | Change::Copy { .. } => {
                let after = self.changed(change, now, exceptions);
                self.objects.insert(Self::made_by(change), after);
            }
        }
    }

    /// The daemon died before it answered a change.
    pub fn unanswered(&mut self, change: &Change, now: u64, exceptions: &Exceptions) {
        if let Some(names) = change.generates() {
            self.unanswered.push(Unanswered {
                names: names.clone(),
                is_pair: matches!(change, Change::GeneratePair { .. }),
                exceptions: exceptions.clone(),
                made_at: now,
            });
            return;
        }
        if let Change::Destroy { object } = change {
            let object = self.objects.get_mut(object).expect("it is known");
            object.presence = Presence::Unclear;
            object.exceptions.unseen.extend(exceptions.unseen.clone());
            return;
        }
        let made = Self::made_by(change);
        let after = self.changed(change, now, exceptions);
        let is_there = |there: &ExpectedObject| there.presence == Presence::There;
        let is_made_there = self.objects.get(&made).is_some_and(is_there);
        if let Change::Set { object, names, .. } = change {
            let old = self.objects.get_mut(object).expect("it is known");
            old.exceptions.unseen.extend(exceptions.unseen.clone());
            if *object == made {
                old.names.push(names.clone());
                return;
            }
            old.presence = Presence::Unclear;
            if !is_made_there {
                self.either.push((*object, made));
            }
        }
        if is_made_there {
            // It was there before, and stays: also one of that name that only a token has which is away.
            return;
        }
        let presence = Presence::Unclear;
        self.objects
            .insert(made, ExpectedObject { presence, ..after });
    }

    /// The names of the objects that a change concerns, so far as they are known before.
    pub fn touched(change: &Change) -> Vec<ObjectId> {
        match change {
            Change::Generate { .. } | Change::GeneratePair { .. } => Vec::new(),
            Change::Destroy { object } => vec![*object],
            Change::Set { object, .. } => vec![*object, Self::made_by(change)],
            Change::Copy { model, .. } => vec![*model, Self::made_by(change)],
            Change::Create { .. } => vec![Self::made_by(change)],
        }
    }

    /// The name of the object that a change makes or renames.
    fn made_by(change: &Change) -> ObjectId {
        match change {
            Change::Create { value, names } => ObjectId::of_data(b"", &names.label, value),
            Change::Copy { copy, .. } => *copy,
            Change::Set { becomes, .. } => *becomes,
            _ => panic!("{change:?} makes no object of a known name"),
        }
    }

    /// The object that it is then.
    fn changed(&self, change: &Change, now: u64, exceptions: &Exceptions) -> ExpectedObject {
        let (names, model) = match change {
            Change::Create { value, names } => {
                let there = self.objects.get(&Self::made_by(change));
                let there = there.filter(|there| there.presence == Presence::There);
                return there.cloned().unwrap_or_else(|| ExpectedObject {
                    presence: Presence::There,
                    nature: Nature::Data {
                        value: value.clone(),
                    },
                    names: vec![names.clone()],
                    exceptions: Exceptions {
                        may_lack: exceptions.unseen.clone(),
                        unseen: exceptions.unseen.clone(),
                    },
                    held: BTreeSet::new(),
                    is_key: false,
                    made_at: now,
                });
            }
            Change::Copy { model, names, .. } => (names, &self.objects[model]),
            Change::Set { object, names, .. } => (names, &self.objects[object]),
            _ => panic!("{change:?} changes no object"),
        };
        let mut object = model.clone();
        object.names = vec![names.clone()];
        object.exceptions.unseen.extend(exceptions.unseen.clone());
        object.exceptions.may_lack.extend(exceptions.unseen.clone());
        if let Change::Copy { .. } = change {
            object.held.clear();
        }
        object
    }

    /// A token has lost all that it had, or another one is in its place.
    pub fn replaced(&mut self, old: &str, serial: &str) {
        for object in self.objects.values_mut() {
            object.held.remove(old);
        }
        let objects = self.objects.values_mut();
        let kept = objects.map(|object| &mut object.exceptions);
        let made = self.unanswered.iter_mut().map(|made| &mut made.exceptions);
        for exceptions in kept.chain(made) {
            exceptions.may_lack.insert(serial.to_owned());
        }
    }

    /// A key whose maker died before it answered is there.
    pub fn adopt(&mut self, id: ObjectId, object: ExpectedObject) {
        self.objects.insert(id, object);
    }
}

/// The classes of the objects that a generation makes.
pub(super) fn classes(is_pair: bool) -> &'static [Class] {
    if is_pair {
        &[Class::PUBLIC_KEY, Class::PRIVATE_KEY]
    } else {
        &[Class::SECRET_KEY]
    }
}
