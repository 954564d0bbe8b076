//! Debts that later changes have cancelled: what was deleted meanwhile is not made any more, and data that was renamed
//! is fetched by its new name.

use super::JournalState;
use crate::member_task::MemberTask;
use hsmux_state::json::{Cbor, Name};
use hsmux_token::{Class, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

impl JournalState {
    /// Cancels debts that a later change has made useless, or that can never be paid.
    pub(super) fn cancel_debts(&mut self) {
        let mut cancelled = BTreeSet::new();
        for owed in self.owed.values_mut() {
            let mut ahead = LaterFate {
                tombstones: &self.tombstones,
                fates: BTreeMap::new(),
                named_by: BTreeMap::new(),
                models: BTreeMap::new(),
                appended: Vec::new(),
            };
            for (change, works) in owed.iter_mut().rev() {
                let before = works.len();
                let mut kept: Vec<_> = std::mem::take(works)
                    .into_iter()
                    .rev()
                    .filter_map(|Cbor(work)| ahead.review(*change, work))
                    .map(Cbor)
                    .collect();
                kept.reverse();
                *works = kept;
                if works.len() < before {
                    cancelled.insert(*change);
                }
            }
            for (change, work) in ahead.appended {
                owed.entry(change).or_default().push(Cbor(work));
            }
            owed.retain(|_, works| !works.is_empty());
        }
        self.owed.retain(|_, owed| !owed.is_empty());
        for change in cancelled {
            self.settle_keys(change);
        }
    }
}

/// The later fate of objects on one member, by its debts and by the tombstones. Debts are reviewed from the last to
/// the first.
struct LaterFate<'a> {
    tombstones: &'a BTreeMap<Name, u64>,
    /// The last name of an object; nothing if it is deleted.
    fates: BTreeMap<ObjectId, Option<ObjectId>>,
    /// The changes that give objects their last names.
    named_by: BTreeMap<ObjectId, u64>,
    /// Objects that are copied before they are deleted, and the last changes that copy them.
    models: BTreeMap<ObjectId, u64>,
    /// Tasks that are owed after those of a change.
    appended: Vec<(u64, MemberTask)>,
}

impl LaterFate<'_> {
    /// The task as it is still owed.
    fn review(&mut self, change: u64, work: MemberTask) -> Option<MemberTask> {
        match &work {
            MemberTask::Remove { objects } => {
                self.fates.extend(objects.iter().map(|id| (*id, None)));
            }
            MemberTask::Set {
                object, becomes, ..
            } if object != becomes => {
                let fate = self.fate(change, *becomes);
                self.fates.insert(*object, fate);
                if fate == Some(*becomes) {
                    self.named_by.insert(*becomes, change);
                }
                if let Some(copied) = self.models.remove(becomes) {
                    self.remove_model(*becomes, copied, fate);
                    self.models.insert(*object, copied);
                } else if fate.is_none() {
                    // It may be there by its old name.
                    let objects = vec![*object];
                    return Some(MemberTask::Remove { objects });
                }
            }
            MemberTask::Set { .. } | MemberTask::Sweep { .. } => {}
            MemberTask::Fetch { makes } => {
                self.models.remove(makes);
                return self.fetch(change, *makes);
            }
            MemberTask::Copy { makes, object, .. } => {
                let is_model = self.models.remove(makes);
                let copy = self.fate(change, *makes);
                // Its model will not be there, or not by this name: data is fetched from others, and these have the copy.
                if object.class == Class::DATA && self.fate(change, *object) != Some(*object) {
                    return self.fetch(change, *makes);
                }
                if copy.is_none() && is_model.is_none() {
                    return None;
                }
                if let Some(copied) = is_model {
                    self.remove_model(*makes, copied, copy);
                }
                self.models.entry(*object).or_insert(change);
            }
            MemberTask::Unwrap { .. } | MemberTask::Create { .. } | MemberTask::Install { .. } => {
                let makes = work.makes();
                let fates: Vec<_> = makes.iter().map(|id| self.fate(change, *id)).collect();
                let copied: Vec<_> = makes.iter().map(|id| self.models.remove(id)).collect();
                if copied.iter().all(Option::is_none) && fates.iter().all(Option::is_none) {
                    return None;
                }
                for ((id, copied), fate) in makes.iter().zip(copied).zip(fates) {
                    if let Some(copied) = copied {
                        self.remove_model(*id, copied, fate);
                    }
                }
            }
        }
        Some(work)
    }

    /// A model that was deleted meanwhile is made for its copy alone. It goes after that, if its removal is not owed.
    fn remove_model(&mut self, model: ObjectId, copied: u64, fate: Option<ObjectId>) {
        if fate.is_none() && !self.fates.contains_key(&model) {
            let objects = vec![model];
            self.appended.push((copied, MemberTask::Remove { objects }));
        }
    }

    /// Data is fetched by its last name. The member may have it by an earlier one, so it is renamed first.
    fn fetch(&mut self, change: u64, makes: ObjectId) -> Option<MemberTask> {
        let last = self.fate(change, makes)?;
        if last == makes {
            return Some(MemberTask::Fetch { makes });
        }
        let named_by = self.named_by.get(&last).copied();
        let work = MemberTask::Fetch { makes: last };
        self.appended.push((named_by.unwrap_or(change), work));
        None
    }

    fn fate(&self, change: u64, object: ObjectId) -> Option<ObjectId> {
        if let Some(fate) = self.fates.get(&object) {
            return *fate;
        }
        let deleted = self.tombstones.get(&Name(object));
        deleted.is_none_or(|at| *at <= change).then_some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Intent, JournalRecord, MemberPart};
    use hsmux_token::Attributes;

    /// Two tokens; the second is away, and owes all that is done.
    #[derive(Default)]
    struct Bench(JournalState);

    fn object(class: Class, name: u8) -> ObjectId {
        ObjectId::of_unidentified(class, "", &[name], b"")
    }

    fn data(name: u8) -> ObjectId {
        object(Class::DATA, name)
    }

    fn key(name: u8) -> ObjectId {
        object(Class::PUBLIC_KEY, name)
    }

    impl Bench {
        fn change(&mut self, work: &MemberTask) {
            let change = self.0.last + 1;
            let names = |ids: &[ObjectId]| ids.iter().copied().map(Name).collect();
            let (makes, removes) = match work {
                MemberTask::Remove { objects } => (vec![], names(objects)),
                MemberTask::Set {
                    object, becomes, ..
                } if object != becomes => (names(&[*becomes]), names(&[*object])),
                work => (names(work.makes()), vec![]),
            };
            let part = |serial: &str| MemberPart {
                serial: serial.to_owned(),
                works: vec![Cbor(work.clone())],
                undo: vec![],
                later: false,
            };
            let intent = Intent {
                call: "C_CreateObject".into(),
                need: 1,
                parts: vec![part("here"), part("away")],
                makes,
                removes,
                origins: vec![],
            };
            let serial = "here".to_owned();
            self.0.add(JournalRecord::Intent {
                change,
                intent,
                at: 1,
            });
            self.0.add(JournalRecord::Step { change, serial });
            self.0.add(JournalRecord::Commit { change });
        }

        /// The debts in words.
        fn owed(&self) -> Vec<String> {
            assert!(self.0.owed.keys().all(|serial| serial == "away"));
            let works = self.0.owed.values().flat_map(BTreeMap::values).flatten();
            let word = |work: &Cbor<MemberTask>| {
                let names: Vec<_> = work.0.objects().iter().map(name).collect();
                let kind = format!("{:?}", work.0);
                format!("{} {}", kind.split(' ').next().unwrap(), names.join(","))
            };
            works.map(word).collect()
        }
    }

    fn name(id: &ObjectId) -> String {
        let known = (0..9).find(|name| *id == data(*name) || *id == key(*name));
        known.unwrap().to_string()
    }

    fn fetch(makes: ObjectId) -> MemberTask {
        MemberTask::Fetch { makes }
    }

    fn create(makes: ObjectId) -> MemberTask {
        let template = Attributes::default();
        MemberTask::Create { makes, template }
    }

    fn remove(id: ObjectId) -> MemberTask {
        MemberTask::Remove { objects: vec![id] }
    }

    fn rename(object: ObjectId, becomes: ObjectId) -> MemberTask {
        let template = Attributes::default();
        MemberTask::Set {
            object,
            becomes,
            template,
            is_undo: false,
        }
    }

    fn copy(object: ObjectId, makes: ObjectId) -> MemberTask {
        let template = Attributes::default();
        MemberTask::Copy {
            makes,
            object,
            template,
        }
    }

    fn owed(works: &[MemberTask]) -> Vec<String> {
        let mut bench = Bench::default();
        for work in works {
            bench.change(work);
        }
        bench.owed()
    }

    #[test]
    fn what_is_deleted_is_not_made() {
        for make in [fetch(data(1)), create(key(1))] {
            let id = make.makes()[0];
            let all = owed(&[make.clone(), fetch(data(2)), remove(id)]);
            assert_eq!(all, ["Fetch 2", "Remove 1"]);
            let [made, gone] = ["Fetch 1", "Remove 1"];
            let again = owed(&[make.clone(), remove(id), fetch(data(1))]);
            assert_eq!(again, [gone, made]);
            let both = owed(&[make.clone(), remove(id), make, remove(id)]);
            assert_eq!(both, [gone, gone]);
        }
    }

    #[test]
    fn data_that_was_renamed_is_fetched_by_its_new_name_and_keys_are_made_as_before() {
        let all = owed(&[
            fetch(data(1)),
            create(key(4)),
            rename(data(1), data(2)),
            rename(data(2), data(3)),
            rename(key(4), key(5)),
        ]);
        assert_eq!(
            all,
            ["Create 4", "Set 1,2", "Set 2,3", "Fetch 3", "Set 4,5"]
        );
        let gone = owed(&[
            fetch(data(1)),
            create(key(4)),
            rename(data(1), data(2)),
            rename(key(4), key(5)),
            remove(data(2)),
            remove(key(5)),
        ]);
        assert_eq!(gone, ["Remove 1", "Remove 4", "Remove 2", "Remove 5"]);
    }

    #[test]
    fn what_is_copied_is_made_though_it_is_deleted_afterwards() {
        let keys = owed(&[
            create(key(1)),
            copy(key(1), key(2)),
            rename(key(2), key(3)),
            copy(key(3), key(4)),
            remove(key(1)),
            remove(key(3)),
        ]);
        let all = ["Create 1", "Copy 2,1", "Set 2,3", "Copy 4,3"];
        assert_eq!(keys[..4], all);
        // Data is nowhere to be had then, but its copy is.
        let fetched = owed(&[fetch(data(1)), copy(data(1), data(2)), remove(data(1))]);
        assert_eq!(fetched, ["Fetch 2", "Remove 1"]);
        let renamed = owed(&[
            fetch(data(1)),
            copy(data(1), data(2)),
            rename(data(1), data(3)),
        ]);
        assert_eq!(renamed, ["Fetch 2", "Set 1,3", "Fetch 3"]);
        let nothing = owed(&[
            create(key(1)),
            copy(key(1), key(2)),
            remove(key(2)),
            remove(key(1)),
        ]);
        assert_eq!(nothing, ["Remove 2", "Remove 1"]);
    }

    #[test]
    fn a_model_that_was_deleted_goes_after_its_copy() {
        // The member was there when these were deleted, and had them not.
        let gone = |works: &[MemberTask], deleted| {
            let mut bench = Bench::default();
            for work in works {
                bench.change(work);
            }
            bench.0.tombstones.insert(Name(deleted), 9);
            bench.0.cancel_debts();
            let once = bench.owed();
            bench.0.cancel_debts();
            assert_eq!(bench.owed(), once);
            once
        };
        let made = gone(&[create(key(1)), copy(key(1), key(2))], key(1));
        assert_eq!(made, ["Create 1", "Copy 2,1", "Remove 1"]);
        let renamed = gone(&[rename(key(1), key(2)), copy(key(2), key(3))], key(2));
        assert_eq!(renamed, ["Set 1,2", "Copy 3,2", "Remove 2"]);
        let twice = gone(
            &[create(key(1)), copy(key(1), key(2)), copy(key(1), key(3))],
            key(1),
        );
        assert_eq!(twice, ["Create 1", "Copy 2,1", "Copy 3,1", "Remove 1"]);
    }

    #[test]
    fn what_was_kept_by_a_version_before_is_cancelled_when_it_is_read() {
        let mut bench = Bench::default();
        bench.change(&fetch(data(1)));
        bench.change(&fetch(data(2)));
        // The member was told of the deletion, and has forgotten it again.
        bench.0.tombstones.insert(Name(data(1)), 3);
        bench.0.cancel_debts();
        assert_eq!(bench.owed(), ["Fetch 2"]);
    }
}
