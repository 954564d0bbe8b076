//! What has to be true of the tokens' objects.

use std::collections::{BTreeMap, BTreeSet};

use hsmux_token::{Object, ObjectId};

use super::change::{Change, Names, Nature};
use super::cryptography::MAGIC;
use super::expected::{Expected, ExpectedObject, Presence, Unanswered, classes};
use super::token_model::TokenModel;
use super::world::ChangeWorld;
use crate::Coordinator;
use crate::member_task::MemberTask;
use hsmux_state::json::Name;

/// A token and the objects that applications see there.
pub(super) struct Holdings {
    pub serial: String,
    pub objects: BTreeMap<ObjectId, (Object, u64)>,
}

/// The objects of each token. None has an object twice.
pub(super) fn holdings(world: &ChangeWorld) -> Vec<Holdings> {
    let mut all = Vec::new();
    let mut twice = None;
    for token in &world.state().tokens {
        let mut objects = BTreeMap::new();
        for (object, value) in token.holdings() {
            if objects.insert(object.id, (object.clone(), value)).is_some() {
                twice = Some(format!("{} has {:?} twice", token.serial, object.id));
            }
        }
        all.push(Holdings {
            serial: token.serial.clone(),
            objects,
        });
    }
    if let Some(twice) = twice {
        world.fail(&twice);
    }
    all
}

/// Right after an answer of success: enough members have the object, and the journal says of all others that they owe it.
pub(super) fn is_reached(
    world: &ChangeWorld,
    coordinator: &Coordinator,
    expected: &Expected,
    change: &Change,
    (id, need): (ObjectId, usize),
) {
    let object = &expected.objects[&id];
    let now = world.state().now;
    let names = object.names.last().expect("it has names");
    let is_gone = matches!(change, Change::Destroy { .. });
    is_shown(world, coordinator, change, id);
    let mut reached = 0;
    for Holdings { serial, objects } in holdings(world) {
        let held = objects
            .get(&id)
            .map(|(held, _)| Names::of(&held.attributes));
        let has_done = match &held {
            Some(held) => !is_gone && held == names,
            None => is_gone,
        };
        if has_done {
            reached += 1;
            continue;
        }
        let is_owed = coordinator.journal.read(|state| {
            let owed = state.owed.get(&serial).into_iter();
            let mut works = owed.flat_map(|owed| owed.values().flatten());
            works.any(|work| work.0.objects().contains(&id))
        });
        let is_excepted = match held {
            Some(_) => object.exceptions.unseen.contains(&serial),
            None => object.may_lack(&serial, now),
        };
        if !is_owed && !is_excepted {
            world.fail(&format!(
                "{serial} has not done {change:?} of {id:?}, and does not owe it"
            ));
        }
    }
    if reached < need {
        world.fail(&format!(
            "{change:?} of {id:?} reached {reached} tokens, and {need} are needed"
        ));
    }
    if is_gone && !coordinator.is_tombstoned(&id) {
        world.fail(&format!("{id:?} was deleted, and would be served"));
    }
}

/// The pool was told: no member serves what was deleted or renamed, and those that have done it show the new object.
fn is_shown(world: &ChangeWorld, coordinator: &Coordinator, change: &Change, id: ObjectId) {
    let gone = match change {
        Change::Destroy { object } => Some(*object),
        Change::Set { object, .. } if *object != id => Some(*object),
        _ => None,
    };
    let debtors = coordinator.journal.read(|state| state.debtors(&[id]));
    let owes = |token: &TokenModel| debtors.iter().any(|debtor| debtor.serial == token.serial);
    let wrong = |token: &TokenModel| {
        let still = gone.filter(|gone| token.shown.contains(gone));
        let is_hidden = token.holds(id).is_some() && !token.shown.contains(&id) && !owes(token);
        let id = still.or((gone != Some(id) && is_hidden).then_some(id))?;
        let serial = &token.serial;
        Some(format!(
            "the pool was not told that {change:?} has changed {id:?} on {serial}"
        ))
    };
    let serving = |token: &&TokenModel| token.serves();
    let wrong = world.state().tokens.iter().filter(serving).find_map(wrong);
    if let Some(wrong) = wrong {
        world.fail(&wrong);
    }
}

/// A token that owes something after everything has recovered cannot pay: all others that had the data were replaced. It is
/// forgotten.
pub(super) fn is_unpayable(world: &ChangeWorld, coordinator: &Coordinator, serial: &str) {
    let holdings = holdings(world);
    let is_lost = |id: &ObjectId| holdings.iter().all(|all| !all.objects.contains_key(id));
    let mut lost: BTreeSet<ObjectId> = BTreeSet::new();
    let mut changes = Vec::new();
    coordinator.journal.read(|state| {
        for (change, works) in &state.owed[serial] {
            let objects: Vec<_> = works.iter().flat_map(|work| work.0.objects()).collect();
            let fetches = works
                .iter()
                .any(|work| matches!(&work.0, MemberTask::Fetch { makes } if is_lost(makes)));
            // Later changes of it wait for the data.
            if !fetches && !objects.iter().any(|id| lost.contains(id)) {
                world.fail(&format!("{serial} still owes {works:?}"));
            }
            lost.extend(objects);
            changes.push(*change);
        }
    });
    coordinator
        .journal
        .forget(serial, changes)
        .expect("nothing fails now");
}

/// After everything has recovered: what was promised is there, on every member, and nothing else.
pub(super) fn check(world: &ChangeWorld, coordinator: &Coordinator, expected: &mut Expected) {
    let holdings = holdings(world);
    let check = Check {
        world,
        coordinator,
        holdings: &holdings,
        now: world.state().now,
    };
    for made in std::mem::take(&mut expected.unanswered) {
        check.unanswered(expected, &made);
    }
    for (id, object) in &mut expected.objects {
        check.object(*id, object);
    }
    for (old, new) in std::mem::take(&mut expected.either) {
        let there = [old, new].map(|id| expected.objects[&id].presence == Presence::There);
        let is_held = |id: &ObjectId| holdings.iter().any(|all| all.objects.contains_key(id));
        if there[0] == there[1] && [old, new].iter().any(is_held) {
            world.fail(&format!(
                "{old:?} was renamed to {new:?}: {there:?} are there"
            ));
        }
    }
    for Holdings { serial, objects } in &holdings {
        for id in objects.keys() {
            if !expected.objects.contains_key(id) {
                world.fail(&format!("{serial} has {id:?}, which no answer has named"));
            }
        }
    }
    // A token that was replaced by another one may come back.
    let waits = coordinator.journal.read(|state| {
        let works = state.owed.values().flat_map(BTreeMap::values).flatten();
        works.into_iter().any(|work| work.0.has_key())
    });
    if waits {
        return;
    }
    let wrapped = hex::encode(MAGIC).into_bytes();
    let journal = world.state().disk.journal();
    if journal.windows(wrapped.len()).any(|part| part == wrapped) {
        world.fail("the journal has a wrapped key that nobody waits for");
    }
}

struct Check<'a> {
    world: &'a ChangeWorld,
    coordinator: &'a Coordinator,
    holdings: &'a [Holdings],
    now: u64,
}

impl Check<'_> {
    /// One object, about which nothing is unclear afterwards.
    fn object(&self, id: ObjectId, object: &mut ExpectedObject) {
        let fail = |message: String| self.world.fail(&format!("{id:?} {message}"));
        let (mut holders, mut lackers) = (Vec::new(), Vec::new());
        let mut is_served_unseen = false;
        let mut shown: Vec<Names> = Vec::new();
        for Holdings { serial, objects } in self.holdings {
            let unseen = &object.exceptions.unseen;
            match objects.get(&id) {
                // What it has not heard of is at least not served.
                Some(_) if unseen.contains(serial) => {
                    let is_served = !self.coordinator.is_tombstoned(&id);
                    is_served_unseen |= is_served;
                    if is_served && object.presence == Presence::Gone {
                        fail(format!("was deleted, and {serial} would serve it"));
                    }
                }
                Some((held, _)) => {
                    holders.push(serial);
                    shown.push(Names::of(&held.attributes));
                }
                None if !object.may_lack(serial, self.now) => lackers.push(serial),
                None => {}
            }
        }
        // Data is not kept in the journal: all tokens that had it were replaced.
        if holders.is_empty() && object.held.is_empty() && !object.is_key {
            object.presence = Presence::Gone;
        }
        match object.presence {
            Presence::There if !lackers.is_empty() => {
                fail(format!("is not on {lackers:?}, but on {holders:?}"));
            }
            Presence::Gone if !holders.is_empty() => fail(format!("is still on {holders:?}")),
            Presence::Unclear if !holders.is_empty() && !lackers.is_empty() => {
                fail(format!("is on {holders:?}, and not on {lackers:?}"));
            }
            Presence::Unclear => {
                object.presence = if holders.is_empty() && !is_served_unseen {
                    Presence::Gone
                } else {
                    Presence::There
                };
            }
            _ => {}
        }
        shown.dedup();
        match &shown[..] {
            [] => object.names.truncate(1),
            [names] if object.names.contains(names) => object.names = vec![names.clone()],
            other => fail(format!("is called {other:?}, and not {:?}", object.names)),
        }
    }

    /// Keys whose maker died before it answered: one of each class, on all or on none.
    fn unanswered(&self, expected: &mut Expected, made: &Unanswered) {
        let mut found = 0;
        // A token that cannot get the private half may have the public one.
        let mut is_whole = false;
        for class in classes(made.is_pair) {
            let mut ids = BTreeSet::new();
            for Holdings { objects, .. } in self.holdings {
                let of_it = objects.values().filter(|(object, _)| {
                    let label = Names::of(&object.attributes).label;
                    object.id.class == *class && label == made.names.label
                });
                ids.extend(of_it.map(|(object, value)| (Name(object.id), *value)));
            }
            ids.retain(|(id, _)| !expected.objects.contains_key(&id.0));
            if ids.len() > 1 {
                self.world
                    .fail(&format!("{ids:?} were made for {:?}", made.names));
            }
            let Some((Name(id), _)) = ids.pop_first() else {
                continue;
            };
            found += 1;
            let may_lack = &made.exceptions.may_lack;
            let holders = || {
                self.holdings
                    .iter()
                    .filter(|all| all.objects.contains_key(&id))
            };
            is_whole |= holders().any(|all| !may_lack.contains(&all.serial));
            let holder = self.holdings.iter().find_map(|all| all.objects.get(&id));
            let attributes = &holder.expect("it was found").0.attributes;
            let object = ExpectedObject {
                presence: Presence::There,
                nature: Nature::of(id.class, attributes),
                names: vec![Names::of(attributes)],
                exceptions: made.exceptions.clone(),
                held: BTreeSet::new(),
                is_key: true,
                made_at: made.made_at,
            };
            expected.adopt(id, object);
        }
        if is_whole && found < classes(made.is_pair).len() {
            self.world
                .fail(&format!("half of the pair {:?} is there", made.names));
        }
    }
}
