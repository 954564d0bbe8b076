//! A member returns: it does what it owes, and what it should not have, or lacks, is told.

use super::Coordinator;
use super::journal::{Record, Sync};
use super::json::{Cbor, Name};
use super::members::{Member, Members, Present, present};
use super::plan::Roster;
use super::site::Limit;
use super::work::{Effect, Work};
use hsmux_token::{Error, Kind, ObjectId, Result, Scope, Snapshot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long one operation of it may take.
const EACH: Duration = Duration::from_secs(30);

/// What there is to say about a member that has returned.
#[derive(Default, Debug)]
pub struct CatchUp {
    /// Changes that it has made up for.
    pub applied: usize,
    /// Changes that it still owes, and why.
    pub failed: Vec<Error>,
    /// Objects that were deleted through the pool but are on this token: they are not served.
    pub tombstoned: Vec<ObjectId>,
    /// Objects that were put on this token through the pool and are not there any more: deleted by
    /// other means. They are not brought back by themselves; `hsmux key clone` does.
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
    pub fn catch_up(&self, members: &dyn Members, member: &Member) -> Result<CatchUp> {
        let returned = member.present().ok_or_else(|| {
            Error::token(Kind::Lost, format!("{}: is not connected", member.name))
        })?;
        self.met(&returned)?;
        let mut told = CatchUp::default();
        if self.owes(&returned.serial) {
            let _turn = self.turn.lock();
            for (_, result) in self.settle(&returned, &others(members, &returned)) {
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
            self.compare(&returned, &mut told)?;
        }
        Ok(told)
    }

    /// Whether a member owes something. What is decided while it comes into service it does at the
    /// end of that change, or before the next.
    pub fn owes(&self, serial: &str) -> bool {
        self.journal.read(|state| state.owed.contains_key(serial))
    }

    /// Notes the tokens that stand behind the members' names.
    pub(super) fn meet(&self, roster: &Roster) -> Result<()> {
        roster.here.iter().try_for_each(|present| self.met(present))
    }

    fn met(&self, present: &Present) -> Result<()> {
        let known = self
            .journal
            .read(|state| state.serials.get(&present.name) == Some(&present.serial));
        if known {
            return Ok(());
        }
        let (member, serial) = (present.name.clone(), present.serial.clone());
        self.journal
            .append(Record::Seen { member, serial }, Sync::Later)
    }

    /// Members in service that still owe something do it now; says whether one had to be connected
    /// anew for it.
    pub(super) fn settle_all(&self, here: &[Present], members: &dyn Members) -> bool {
        let mut renewed = false;
        for present in here {
            let mut all = Effect::default();
            for (change, result) in self.settle(present, here) {
                match result {
                    Ok(effect) => all.then(effect),
                    Err(error) => tracing::warn!(%error, change, "still owed"),
                }
            }
            if !all.made.is_empty() || !all.gone.is_empty() {
                members.changed(&present.name, &all.made, &all.gone);
            }
            if all.unseen {
                members.renew(&present.name);
                renewed = true;
            }
        }
        renewed
    }

    /// A member does what it owes, in the order of the changes.
    fn settle(&self, present: &Present, others: &[Present]) -> Vec<(u64, Result<Effect>)> {
        let owed: Vec<(u64, Vec<Cbor<Work>>)> = self.journal.read(|state| {
            let owed = state.owed.get(&present.serial);
            owed.map(|works| works.clone().into_iter().collect())
                .unwrap_or_default()
        });
        let mut results = Vec::new();
        for (change, works) in owed {
            let works: Vec<Work> = works.into_iter().map(|work| work.0).collect();
            let result = self.do_works(present, &works, others, Limit::Each(EACH), true);
            let ends = matches!(&result, Err(error) if error.scope() == Scope::Token && error.ends_connection());
            if result.is_ok() {
                self.paid(change, &present.serial);
            }
            results.push((change, result));
            if ends {
                break;
            }
        }
        results
    }

    /// What is on the token against what the journal knows.
    fn compare(&self, present: &Present, told: &mut CatchUp) -> Result<()> {
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

fn others(members: &dyn Members, except: &Present) -> Vec<Present> {
    let mut others = present(members);
    others.retain(|present| present.serial != except.serial);
    others
}
