//! A member returns: it does what it owes, and what it should not have, or lacks, is told.

use super::Coordinator;
use super::journal::{JournalRecord, SyncPolicy};
use super::member_task::{MemberTask, TaskEffect};
use super::members::{PoolMember, PoolMembers, PresentMember, present};
use super::plan::Roster;
use super::token_access::TimeLimit;
use hsmux_state::json::{Cbor, Name};
use hsmux_token::{Class, Error, Kind, Object, ObjectId, Result, Scope, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long one operation of it may take.
const EACH: Duration = Duration::from_secs(30);

/// How long a new transport key may take: some tokens need a minute for one.
const MAKING: Duration = Duration::from_secs(180);

/// The result for a member that has returned.
#[derive(Default, Debug)]
pub struct CatchUp {
    /// Changes that it has made up for.
    pub applied: usize,
    /// Changes that it still owes, and why.
    pub failed: Vec<Error>,
    /// Objects that were deleted through the pool but are on this token: they are not served.
    pub tombstoned: Vec<ObjectId>,
    /// Objects that were put on this token through the pool and are not there any more: deleted by
    /// other means, or not kept for it for so long. They are not brought back by themselves; `hsmux key clone` does.
    pub missing: Vec<ObjectId>,
    /// It has something now that its module has not seen: it is to be connected anew, and to catch up
    /// then. Nothing else is told.
    pub unseen: bool,
    /// All objects of the token, as they were read for this.
    pub snapshot: Arc<Snapshot>,
}

impl Coordinator {
    /// Brings a member that has just connected up to date. The pool calls this before it reads the
    /// member's objects and proves them; it blocks while a change is carried out elsewhere.
    ///
    /// `members` are the pool's (an object may be taken over from another), `member` is the one that
    /// has returned, in service or not yet.
    pub fn catch_up(&self, members: &dyn PoolMembers, member: &PoolMember) -> Result<CatchUp> {
        let returned = PresentMember::of(member).ok_or_else(|| {
            Error::token(Kind::Lost, format!("{}: is not connected", member.name))
        })?;
        self.met(&returned)?;
        let mut told = CatchUp::default();
        self.expire_envelopes();
        if self.owes(&returned.serial) {
            let _turn = self.turn.lock();
            for result in self.settle(&returned, &others(members, &returned)) {
                match result {
                    Ok(effect) => {
                        told.applied += 1;
                        told.unseen |= effect.unseen;
                    }
                    Err(error) => told.failed.push(error),
                }
            }
        }
        if !told.unseen {
            self.replace_transport_key(&returned);
            self.compare(&returned, &mut told)?;
            self.remove_old_transport_keys(&returned, &told.snapshot);
        }
        self.journal.drop_keys(false);
        Ok(told)
    }

    /// Replaces a transport key of an old kind. Envelopes for the old key are opened first.
    fn replace_transport_key(&self, present: &PresentMember) {
        let pin = self.transport.pin(&present.serial);
        if pin.is_none_or(|pin| !pin.is_old()) {
            return;
        }
        let enrolled = self
            .transport
            .enrol(present.access(TimeLimit::Each(MAKING)), &present.serial);
        if let Err(error) = enrolled {
            tracing::warn!(member = present.name, %error, "the old transport key stays for now");
        }
    }

    /// Transport keys that were replaced go once nothing is owed by which they would be needed.
    fn remove_old_transport_keys(&self, present: &PresentMember, snapshot: &Snapshot) {
        let serial = &present.serial;
        let needed = self.journal.read(|state| -> BTreeSet<ObjectId> {
            let owed = state.owed.get(serial).into_iter();
            let works = owed.flat_map(|owed| owed.values().flatten());
            works.filter_map(|work| work.0.opener()).collect()
        });
        for id in self.transport.leftovers(serial, &snapshot.objects) {
            if needed.contains(&id.with_class(Class::PRIVATE_KEY)) {
                continue;
            }
            match present.access(TimeLimit::Each(EACH)).destroy(id.into()) {
                Ok(_) => tracing::info!(member = present.name, "{id:?}: old transport key removed"),
                Err(error) => {
                    tracing::warn!(member = present.name, %error, "an old transport key stays");
                }
            }
        }
    }

    /// Members that have been away for too long do not get what was kept for them.
    pub(super) fn expire_envelopes(&self) {
        for (serial, change) in self.journal.expire(self.envelope_life) {
            let member = self.journal.read(|state| state.member_of(&serial));
            tracing::warn!(
                member,
                change,
                "has been away for longer than [pool] envelope_life: it does not get the key that was \
                 made then. `hsmux key list` shows what it lacks, `hsmux key clone` brings what can be copied"
            );
        }
    }

    /// Keys that were made for a transport key which a token has lost, and which another one replaces, can never be taken
    /// out: the token was initialised anew.
    fn drop_dead_envelopes(&self, present: &PresentMember) {
        let serial = &present.serial;
        let pin = self.transport.pin(serial);
        let Some(current) = pin.and_then(|pin| pin.private_key().ok()) else {
            return;
        };
        let openers: BTreeMap<u64, ObjectId> = self.journal.read(|state| {
            let owed = state.owed.get(serial).into_iter().flatten();
            owed.filter_map(|(change, works)| {
                let opener = works.iter().find_map(|work| work.0.opener())?;
                (opener != current).then_some((*change, opener))
            })
            .collect()
        });
        let access = present.access(TimeLimit::Each(EACH));
        let is_gone = |opener: &ObjectId| matches!(access.find(*opener), Ok(None));
        let dead: Vec<u64> = openers
            .into_iter()
            .filter(|(_, opener)| is_gone(opener))
            .map(|(change, _)| change)
            .collect();
        if dead.is_empty() {
            return;
        }
        tracing::warn!(
            member = present.name,
            keys = dead.len(),
            "its transport key was replaced: it does not get keys that were made for the one before. `hsmux key list` shows \
             what it lacks"
        );
        if let Err(error) = self.journal.expire_for(serial, dead) {
            tracing::warn!(%error, "not noted");
        }
    }

    /// True if a member owes something. A debt that arises while the member connects is paid at the end of that
    /// change, or before the next one.
    pub fn owes(&self, serial: &str) -> bool {
        self.journal.read(|state| state.owed.contains_key(serial))
    }

    /// Notes which tokens have the members' names.
    pub(super) fn meet(&self, roster: &Roster) -> Result<()> {
        roster.here.iter().try_for_each(|present| self.met(present))
    }

    fn met(&self, present: &PresentMember) -> Result<()> {
        let known = self
            .journal
            .read(|state| state.serials.get(&present.name) == Some(&present.serial));
        if known {
            return Ok(());
        }
        let (member, serial) = (present.name.clone(), present.serial.clone());
        self.journal
            .append(JournalRecord::Seen { member, serial }, SyncPolicy::Later)
    }

    /// Members in service that still owe something do it now; says whether one had to be connected
    /// anew for it.
    pub(super) fn settle_all(&self, here: &[PresentMember], members: &dyn PoolMembers) -> bool {
        let mut renewed = false;
        for present in here {
            let mut all = TaskEffect::default();
            for effect in self.settle(present, here).into_iter().flatten() {
                all.then(effect);
            }
            // A model may have been made for its copy alone.
            let (buried, made) = all
                .made
                .into_iter()
                .partition(|o| self.is_tombstoned(&o.id));
            all.made = made;
            all.gone
                .extend(buried.iter().map(|object: &Object| object.id));
            if !all.made.is_empty() || !all.gone.is_empty() {
                self.show_origins(&mut all.made);
                members.changed(&present.name, &all.made, &all.gone);
            }
            if all.unseen {
                members.renew(&present.name);
                renewed = true;
            }
        }
        renewed
    }

    /// A member pays its debts, in the order of the changes. A debt that it cannot pay is logged, and delays later changes
    /// of the same objects.
    fn settle(&self, present: &PresentMember, others: &[PresentMember]) -> Vec<Result<TaskEffect>> {
        self.drop_dead_envelopes(present);
        let owed: Vec<(u64, Vec<Cbor<MemberTask>>)> = self.journal.read(|state| {
            let owed = state.owed.get(&present.serial);
            owed.map(|works| works.clone().into_iter().collect())
                .unwrap_or_default()
        });
        let mut results = Vec::new();
        let mut held_up: BTreeSet<ObjectId> = BTreeSet::new();
        for (change, works) in &owed {
            let works: Vec<MemberTask> = works.iter().map(|work| work.0.clone()).collect();
            let objects = || works.iter().flat_map(MemberTask::objects);
            if objects().any(|object| held_up.contains(&object)) {
                held_up.extend(objects());
                continue;
            }
            let result = self.do_works(present, &works, others, TimeLimit::Each(EACH), true);
            let mut ends = false;
            match &result {
                Ok(_) if self.paid(*change, &present.serial) => {}
                // Done a second time, it must not come after a later change.
                Ok(_) => held_up.extend(objects()),
                Err(error) => {
                    self.still_owed(&present.name, &present.serial, *change, error);
                    held_up.extend(objects());
                    ends = error.scope() == Scope::Token && error.ends_connection();
                }
            }
            results.push(result);
            if ends {
                break;
            }
        }
        self.journal.read(|state| {
            let owed = state.owed.get(&present.serial);
            let is_owed = |change: &u64| owed.is_some_and(|owed| owed.contains_key(change));
            self.unpaid
                .retain(|(serial, change)| *serial != present.serial || is_owed(change));
        });
        results
    }

    /// Compares the token's objects with the journal.
    fn compare(&self, present: &PresentMember, told: &mut CatchUp) -> Result<()> {
        let snapshot = present.token.objects().map_err(|e| e.at(&present.name))?;
        let there: BTreeSet<Name> = snapshot.objects.iter().map(|o| Name(o.id)).collect();
        self.journal.read(|state| {
            let tombstoned = there.iter().filter(|n| state.tombstones.contains_key(n));
            told.tombstoned = tombstoned.map(|name| name.0).collect();
            let owed = state.owed.get(&present.serial);
            let owed: BTreeSet<Name> = owed
                .into_iter()
                .flat_map(|changes| changes.values().flatten())
                .flat_map(|work| work.0.makes().iter().copied().map(Name))
                .collect();
            let missing = state.placed.iter().filter(|(name, on)| {
                on.contains(&present.serial) && !there.contains(name) && !owed.contains(name)
            });
            told.missing = missing.map(|(name, _)| name.0).collect();
        });
        told.snapshot = snapshot;
        Ok(())
    }
}

fn others(members: &dyn PoolMembers, except: &PresentMember) -> Vec<PresentMember> {
    let mut others = present(members);
    others.retain(|present| present.serial != except.serial);
    others
}
