//! The state that the lines of a journal add up to.

use super::maps::{numbered, pairs};
use super::record::{Intent, JournalRecord, MemberPart};
use crate::member_task::MemberTask;
use crate::origin;
use hsmux_state::json::{Cbor, Name};
use hsmux_token::{Attributes, Object, ObjectId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Confirmed tombstones that are remembered, the latest first to stay. A token that was never seen can
/// bring back a deleted key only after so many later deletions.
const TOMBSTONES: usize = 20_000;

/// The sum of all records.
#[derive(Serialize, Deserialize, Clone, Default, Debug)]
pub(crate) struct JournalState {
    /// The number of the last change.
    pub last: u64,
    /// Serial numbers by the names of the members.
    pub serials: BTreeMap<String, String>,
    /// Changes that were not decided.
    #[serde(deserialize_with = "numbered::map")]
    pub open: BTreeMap<u64, OpenChange>,
    /// By serial number and change: what a member has to do when it returns.
    #[serde(deserialize_with = "numbered::maps")]
    pub owed: BTreeMap<String, BTreeMap<u64, Vec<Cbor<MemberTask>>>>,
    /// Deleted objects and the change that deleted them: they are not served, whoever brings them.
    #[serde(with = "pairs")]
    pub tombstones: BTreeMap<Name, u64>,
    /// Objects that were made through the pool, and on which tokens.
    #[serde(with = "pairs")]
    pub placed: BTreeMap<Name, BTreeSet<String>>,
    /// How keys were made that several members got through the pool.
    #[serde(default, with = "pairs")]
    pub origins: BTreeMap<Name, Cbor<Attributes>>,
    /// Changes with wrapped keys that somebody still waits for, and when they were written.
    #[serde(default, deserialize_with = "numbered::map")]
    pub keys_since: BTreeMap<u64, u64>,
    /// True if lines have wrapped keys that no member waits for.
    #[serde(skip)]
    pub outdated: bool,
}

/// A change that was not decided, and who has done its part.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct OpenChange {
    pub intent: Intent,
    pub done: BTreeSet<String>,
}

/// A member that owes something.
pub(crate) struct Debtor {
    pub serial: String,
    /// It has the object, by some name, and is to set its attributes.
    pub sets: bool,
    /// It is to remove one of that name.
    pub removes: bool,
    /// It is to copy the one of that name that it has, or to give it another name.
    pub needs: bool,
}

impl JournalState {
    /// Adds one record.
    pub fn add(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Snapshot { state } => *self = *state,
            JournalRecord::Seen { member, serial } => {
                self.serials.insert(member, serial);
            }
            JournalRecord::Begin { change, .. } => self.last = self.last.max(change),
            JournalRecord::Intent { change, intent, at } => {
                self.last = self.last.max(change);
                if intent.has_keys() {
                    self.keys_since.insert(change, at);
                }
                let done = BTreeSet::new();
                self.open.insert(change, OpenChange { intent, done });
            }
            JournalRecord::Step { change, serial } => {
                if let Some(open) = self.open.get_mut(&change) {
                    open.done.insert(serial);
                }
            }
            JournalRecord::Commit { change } => {
                self.commit(change);
                self.settle_keys(change);
            }
            JournalRecord::Undone {
                change, untouched, ..
            } => {
                self.undo(change, &untouched);
                self.settle_keys(change);
            }
            JournalRecord::Applied { change, serial } => {
                self.pay(change, &serial, |_| true);
                self.settle_keys(change);
            }
            JournalRecord::Expired { change, serial } => {
                // What it has half made is to be removed nevertheless.
                self.pay(change, &serial, |work| {
                    !matches!(work, MemberTask::Remove { .. })
                });
                self.settle_keys(change);
            }
            JournalRecord::Unexplained { objects } => {
                self.origins.retain(|name, _| !objects.contains(name));
            }
            JournalRecord::Placed { serial, objects } => {
                for name in objects {
                    self.tombstones.remove(&name);
                    self.placed.entry(name).or_default().insert(serial.clone());
                }
            }
        }
    }

    fn commit(&mut self, change: u64) {
        let Some(OpenChange { intent, done }) = self.open.remove(&change) else {
            return;
        };
        // An object that the same change removes and makes stays.
        for name in &intent.removes {
            if !intent.makes.contains(name) {
                self.placed.remove(name);
                self.tombstones.insert(*name, change);
                let origin = self.origins.remove(name);
                // A change that removes one object and makes one gives it another name.
                if let (Some(origin), [becomes]) = (origin, &intent.makes[..]) {
                    self.origins.insert(*becomes, origin);
                }
            }
        }
        // An object made under a known name is a new one, even if a program removed the old one past hsmux.
        for (name, origin) in intent.origins {
            if origin.0.0.is_empty() {
                self.origins.remove(&name);
            } else {
                self.origins.insert(name, origin);
            }
        }
        for name in &intent.makes {
            self.tombstones.remove(name);
            let placed = self.placed.entry(*name).or_default();
            placed.extend(intent.parts.iter().map(|part| part.serial.clone()));
        }
        for MemberPart { serial, works, .. } in intent.parts {
            if !done.contains(&serial) {
                self.owe(serial, change, works);
            }
        }
        if !intent.removes.is_empty() {
            self.cancel_debts();
        }
    }

    fn undo(&mut self, change: u64, untouched: &[String]) {
        let Some(OpenChange { intent, .. }) = self.open.remove(&change) else {
            return;
        };
        // An object that some member had before is not the change's to bury.
        let is_new = |name: &Name| {
            let mut parts = intent.parts.iter().filter(|part| !part.later);
            parts.all(|part| {
                part.undo.iter().any(|work| match &work.0 {
                    MemberTask::Sweep { .. } => true,
                    work => work.objects().contains(&name.0),
                })
            })
        };
        for name in intent.makes.iter().filter(|name| is_new(name)) {
            if !self.placed.contains_key(name) && !intent.removes.contains(name) {
                self.tombstones.insert(*name, change);
            }
        }
        for part in intent.parts {
            if !part.later && !untouched.contains(&part.serial) {
                self.owe(part.serial, change, part.undo);
            }
        }
    }

    /// The members that owe a change of one of these objects.
    pub fn debtors(&self, objects: &[ObjectId]) -> Vec<Debtor> {
        let named = |work: &&MemberTask| work.objects().iter().any(|id| objects.contains(id));
        let debtors = self.owed.iter().filter_map(|(serial, works)| {
            let works = works.values().flatten().map(|work| &work.0);
            let owed: Vec<_> = works.filter(named).collect();
            let is_owed = |what: fn(&MemberTask) -> bool| owed.iter().any(|work| what(work));
            (!owed.is_empty()).then(|| Debtor {
                serial: serial.clone(),
                sets: is_owed(|work| matches!(work, MemberTask::Set { .. })),
                removes: is_owed(|work| matches!(work, MemberTask::Remove { .. })),
                needs: owed.iter().any(|work| match work {
                    MemberTask::Copy { object, .. } => objects.contains(object),
                    MemberTask::Set {
                        object, becomes, ..
                    } => object != becomes && objects.contains(object),
                    _ => false,
                }),
            })
        });
        debtors.collect()
    }

    /// What a member owes for one change.
    pub fn owed_for(&self, change: u64, serial: &str) -> Vec<MemberTask> {
        let owed = self.owed.get(serial).and_then(|owed| owed.get(&change));
        owed.into_iter()
            .flatten()
            .map(|work| work.0.clone())
            .collect()
    }

    fn owe(&mut self, serial: String, change: u64, works: Vec<Cbor<MemberTask>>) {
        if !works.is_empty() {
            self.owed.entry(serial).or_default().insert(change, works);
        }
    }

    /// A member owes these tasks no more.
    fn pay(&mut self, change: u64, serial: &str, which: impl Fn(&MemberTask) -> bool) {
        let Some(owed) = self.owed.get_mut(serial) else {
            return;
        };
        if let Some(works) = owed.get_mut(&change) {
            works.retain(|work| !which(&work.0));
        }
        owed.retain(|_, works| !works.is_empty());
        if owed.is_empty() {
            self.owed.remove(serial);
        }
    }

    /// One member less waits for the keys of a change: what it was sent is not to be kept.
    pub(super) fn settle_keys(&mut self, change: u64) {
        if !self.keys_since.contains_key(&change) {
            return;
        }
        self.outdated = true;
        let waits = |works: &BTreeMap<u64, Vec<Cbor<MemberTask>>>| {
            let works = works.get(&change).into_iter().flatten();
            works.into_iter().any(|work| work.0.has_key())
        };
        if !self.owed.values().any(waits) {
            self.keys_since.remove(&change);
        }
    }

    /// Dates waiting keys that have no date yet; returns whether there are some.
    pub fn date_keys(&mut self, now: u64) -> bool {
        let mut undated = BTreeSet::new();
        for (change, works) in self.owed.values().flatten() {
            let since = self.keys_since.get(change).copied().unwrap_or_default();
            if since == 0 && works.iter().any(|work| work.0.has_key()) {
                undated.insert(*change);
            }
        }
        self.keys_since
            .extend(undated.iter().map(|change| (*change, now)));
        !undated.is_empty()
    }

    /// True if an object was deleted, or its creation undone: it is not served by any member.
    pub fn is_tombstoned(&self, object: &ObjectId) -> bool {
        self.tombstones.contains_key(&Name(*object))
    }

    /// Has an object say how it was made.
    pub fn show_origin(&self, object: &mut Object) {
        if let Some(Cbor(origin)) = self.origins.get(&Name(object.id)) {
            origin::show(object, origin);
        }
    }

    /// Members that have waited for keys since before then: serial numbers, with the changes.
    pub fn waiting_since(&self, before: u64) -> Vec<(String, u64)> {
        let old = self.keys_since.iter().filter(|(_, at)| **at <= before);
        let old: BTreeSet<u64> = old.map(|(change, _)| *change).collect();
        let mut waiting = Vec::new();
        for (serial, owed) in &self.owed {
            let of_old = owed.iter().filter(|(change, works)| {
                old.contains(*change) && works.iter().any(|work| work.0.has_key())
            });
            waiting.extend(of_old.map(|(change, _)| (serial.clone(), *change)));
        }
        waiting
    }

    /// Forgets the oldest tombstones that no member has yet to act on.
    pub fn forget_old_tombstones(&mut self) {
        let Some(surplus) = self.tombstones.len().checked_sub(TOMBSTONES) else {
            return;
        };
        let waiting: BTreeSet<u64> = self
            .owed
            .values()
            .flat_map(|works| works.keys().copied())
            .collect();
        let mut old: Vec<(u64, Name)> = self
            .tombstones
            .iter()
            .filter(|(_, change)| !waiting.contains(change))
            .map(|(name, change)| (*change, *name))
            .collect();
        old.sort_unstable();
        for (_, name) in old.into_iter().take(surplus) {
            self.tombstones.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::compacted;
    use super::*;
    use crate::fuzzing::example;
    use hsmux_token::Class;

    #[test]
    fn an_undone_change_is_undone_and_buried_where_it_may_have_been_done() {
        let [old, new] =
            [b"old", b"new"].map(|name| ObjectId::of_unidentified(Class::DATA, "", b"", name));
        let undo = |objects: &[ObjectId]| {
            let objects = objects.to_vec();
            vec![Cbor(MemberTask::Remove { objects })]
        };
        let part = |serial: &str, undo, later| MemberPart {
            serial: serial.into(),
            works: vec![],
            undo,
            later,
        };
        let mut state = JournalState::default();
        let intent = Intent {
            call: "C_CreateObject".into(),
            need: 3,
            parts: vec![
                part("did", undo(&[old, new]), false),
                // It had one of them before.
                part("had", undo(&[new]), false),
                part("refused", undo(&[old, new]), false),
                part("away", undo(&[old, new]), true),
            ],
            makes: vec![Name(old), Name(new)],
            removes: vec![],
            origins: vec![],
        };
        let (change, at) = (1, 1);
        state.add(JournalRecord::Intent { change, intent, at });
        let (why, untouched) = ("too few".into(), vec!["refused".into()]);
        state.add(JournalRecord::Undone {
            change,
            why,
            untouched,
        });
        let owing: Vec<_> = state.owed.keys().collect();
        assert_eq!(owing, ["did", "had"]);
        assert!(state.is_tombstoned(&new) && !state.is_tombstoned(&old));
    }

    #[test]
    fn changes_and_debts_in_a_compacted_journal_are_read_again() {
        let lines = example();
        let ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        for (end, _) in ends {
            let once = compacted(&lines[..=end]).expect("a journal");
            assert_eq!(compacted(&once), Some(once));
        }
        let owes = String::from_utf8(compacted(&lines).unwrap()).unwrap();
        assert!(owes.contains(r#""owed":{"1":{"2":["#), "{owes}");
    }
}
