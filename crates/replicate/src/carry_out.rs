//! A planned change on all members at once: enough of them do their parts, or all is taken back.

use super::Coordinator;
use super::channel::Opener;
use super::in_parallel::in_parallel;
use super::journal::{JournalRecord, SyncPolicy, seconds};
use super::member_task::{MemberTask, TaskEffect};
use super::members::{PoolMembers, PresentMember};
use super::plan::{ChangePlan, Duty, Roster, too_few};
use super::prove;
use super::token_access::TimeLimit;
use hsmux_state::json::Name;
use hsmux_token::{Error, Kind, Made, Object, ObjectId, Operation, Outcome, Result, Scope};
use std::time::{Duration, Instant};

/// A member that was asked so long ago, or longer, and was not heard of by the deadline hangs.
const HUNG: Duration = Duration::from_secs(2);

/// How long taking back may take, whatever the caller's deadline was.
const TAKE_BACK: Duration = Duration::from_secs(30);

impl Coordinator {
    /// The members do their parts; too few, and all is taken back.
    pub(super) fn carry_out(
        &self,
        change: u64,
        members: &dyn PoolMembers,
        roster: &Roster,
        operation: &Operation,
        plan: &ChangePlan,
    ) -> Result<Outcome> {
        let call = operation.call();
        let intent = plan.intent(call);
        let written = self.journal.append(
            JournalRecord::Intent {
                change,
                intent,
                at: seconds(),
            },
            SyncPolicy::Now,
        );
        if let Err(error) = written {
            if plan.begun {
                self.take_back(change, members, roster, Vec::new(), &error)?;
            }
            return Err(error);
        }
        let mut results = self.on_each(change, roster, plan);
        let done = results.iter().filter(|(_, result)| result.is_ok()).count();
        if done < plan.need && !(plan.is_final() && may_be_done(plan, &results)) {
            let error = too_few_did(call, plan.need, &results);
            self.take_back(change, members, roster, untouched(plan, &results), &error)?;
            return Err(error);
        }
        if plan.is_final() {
            self.journal.commit_deletion(change)?;
        } else if let Err(error) = self
            .journal
            .append(JournalRecord::Commit { change }, SyncPolicy::Now)
        {
            tracing::error!(%error, call, "the change is taken back");
            let error = too_few_did(call, plan.need, &results);
            self.take_back(change, members, roster, untouched(plan, &results), &error)?;
            return Err(error);
        }
        for (_, result) in &mut results {
            if let Ok(effect) = result {
                self.show_origins(&mut effect.made);
            }
        }
        self.tell(members, roster, plan, &results);
        if done == 0 {
            return Err(unconfirmed(call, &results));
        }
        Ok(answer(operation, plan, &results))
    }

    /// Every member that is here does its part, all at once.
    fn on_each<'a>(
        &self,
        change: u64,
        roster: &'a Roster,
        plan: &ChangePlan,
    ) -> Vec<(&'a PresentMember, Result<TaskEffect>)> {
        let duty_of = |present: &'a PresentMember| {
            let duty = plan.duties.iter().find(|d| d.serial == present.serial)?;
            Some((present, duty))
        };
        let parts: Vec<(&PresentMember, &Duty)> = roster.here.iter().filter_map(duty_of).collect();
        let limit = TimeLimit::Until(roster.deadline);
        let results = in_parallel(
            self.threads,
            &parts,
            |(present, _)| *present,
            |(present, duty)| {
                let begun = Instant::now();
                let mut effect = self
                    .do_works(present, &duty.now, &roster.here, limit, duty.asks)
                    .inspect_err(|error| end_if_hung(present, error, begun))?;
                effect.gone.extend(duty.passing_names());
                let serial = present.serial.clone();
                // Lost, it only makes a restart undo what was not yet answered.
                let _ = self
                    .journal
                    .append(JournalRecord::Step { change, serial }, SyncPolicy::Later);
                Ok(effect)
            },
        );
        let presents = parts.into_iter().map(|(present, _)| present);
        presents.zip(results).collect()
    }

    /// Tells the pool what has changed, for all members at once: it proves what is new on each.
    fn tell(
        &self,
        members: &dyn PoolMembers,
        roster: &Roster,
        plan: &ChangePlan,
        results: &[(&PresentMember, Result<TaskEffect>)],
    ) {
        // It serves nothing any more that it has yet to delete or rename.
        let gone = plan.gone();
        let later = |name: &str| {
            if !gone.is_empty() {
                members.changed(name, &[], &gone);
            }
        };
        for present in &roster.aside {
            later(&present.name);
        }
        let one = |(present, result): &(&PresentMember, Result<TaskEffect>)| {
            match result {
                Ok(effect) => members.changed(&present.name, &effect.made, &effect.gone),
                Err(error) => {
                    tracing::warn!(%error, "does its part later");
                    later(&present.name);
                }
            }
            Ok(())
        };
        for told in in_parallel(self.threads, results, |(present, _)| *present, one) {
            if let Err(error) = told {
                tracing::error!(%error, "the pool was not told of a change");
            }
        }
        let unseen = results.iter().filter_map(|(present, result)| {
            let effect = result.as_ref().ok()?;
            effect.unseen.then_some(*present)
        });
        let unseen: Vec<&PresentMember> = unseen.collect();
        // No more than half of all at a time: the others serve.
        for some in unseen.chunks((results.len() / 2).max(1)) {
            let renew = |present: &&PresentMember| {
                members.renew(&present.name);
                Ok(())
            };
            for ended in in_parallel(self.threads, some, |present| *present, renew) {
                if let Err(error) = ended {
                    tracing::error!(%error, "is not connected anew");
                }
            }
        }
    }

    /// Decides changes whose last line could not be written, and tells the pool of those that are finished.
    pub(super) fn decide(&self, here: &[PresentMember], members: &dyn PoolMembers) -> Result<()> {
        for intent in self.journal.decide()? {
            // No member serves what it has yet to delete or rename.
            let gone = intent
                .removes
                .iter()
                .filter(|name| !intent.makes.contains(name));
            let gone = gone.map(|name| name.0).filter(|id| self.is_tombstoned(id));
            let gone: Vec<ObjectId> = gone.collect();
            for present in here {
                let access = present.access(TimeLimit::Each(TAKE_BACK));
                let mut made = Vec::new();
                for Name(id) in &intent.makes {
                    match access.find(*id) {
                        Ok(there) => made.extend(there),
                        Err(error) => {
                            tracing::warn!(%error, "{id:?} is seen when it connects anew");
                        }
                    }
                }
                self.show_origins(&mut made);
                members.changed(&present.name, &made, &gone);
            }
        }
        Ok(())
    }

    /// Takes back what was done. Members that are `untouched` have done nothing. Others that cannot take it back now do so
    /// when they are there again.
    ///
    /// An error says that the journal could not be written. Its lines may then say that enough members have it, so nothing
    /// is taken back: the next change or start decides.
    pub(super) fn take_back(
        &self,
        change: u64,
        members: &dyn PoolMembers,
        roster: &Roster,
        untouched: Vec<String>,
        why: &Error,
    ) -> Result<()> {
        let undone = JournalRecord::Undone {
            change,
            why: why.to_string(),
            untouched,
        };
        self.journal
            .append(undone, SyncPolicy::Now)
            .map_err(|error| undecided(error, "the change"))?;
        let limit = TimeLimit::Until(Instant::now() + TAKE_BACK);
        for present in &roster.here {
            let serial = &present.serial;
            let works = self.journal.read(|state| state.owed_for(change, serial));
            if works.is_empty() {
                continue;
            }
            match self.do_works(present, &works, &roster.here, limit, true) {
                Ok(effect) => {
                    self.paid(change, serial);
                    members.changed(&present.name, &effect.made, &effect.gone);
                    if effect.unseen {
                        members.renew(&present.name);
                    }
                }
                Err(error) => tracing::warn!(%error, change, "is taken back when it returns"),
            }
        }
        Ok(())
    }

    /// Has objects say how they were made.
    pub(super) fn show_origins(&self, objects: &mut [Object]) {
        self.journal.read(|state| {
            for object in objects {
                state.show_origin(object);
            }
        });
    }

    /// A member has done what it owed for a change. False if that could not be noted: it is done a second time. A second
    /// time is right only before a later debt of the same object, so the note is on the disk first.
    pub(super) fn paid(&self, change: u64, serial: &str) -> bool {
        let serial = serial.to_owned();
        self.journal
            .append(JournalRecord::Applied { change, serial }, SyncPolicy::Now)
            .inspect_err(|error| tracing::warn!(%error, change, "not noted"))
            .is_ok()
    }

    /// Does all works of a list on one member, with the proof of the keys that it has made.
    pub(super) fn do_works(
        &self,
        present: &PresentMember,
        works: &[MemberTask],
        others: &[PresentMember],
        limit: TimeLimit,
        again: bool,
    ) -> Result<TaskEffect> {
        let opener = Opener::new(present.access(limit));
        let mut opener = opener.with_replicator(self.replicator.as_deref());
        let mut all = TaskEffect::default();
        for work in works {
            let effect = work.apply(&mut opener, others, again)?;
            if let (MemberTask::Unwrap { .. }, Some(object)) = (work, effect.made.first()) {
                prove::copy(opener.access(), object, None)?;
            }
            all.then(effect);
        }
        Ok(all)
    }
}

/// A member that has not answered cannot be asked to take anything back either: its connection is
/// ended, and it catches up when it returns.
fn end_if_hung(present: &PresentMember, error: &Error, begun: Instant) {
    if error.kind() == Kind::Deadline && begun.elapsed() >= HUNG {
        present
            .token
            .abort("it did not answer a change of its objects in time");
    }
}

/// A token may have deleted something in spite of its error, unless it shows it after it has answered.
fn may_be_done(plan: &ChangePlan, results: &[(&PresentMember, Result<TaskEffect>)]) -> bool {
    results.iter().any(|(present, result)| match result {
        Err(error) if error.scope() == Scope::Request || error.kind() == Kind::Busy => false,
        Err(error) if matches!(error.kind(), Kind::Vendor(_)) => {
            let access = present.access(TimeLimit::Each(TAKE_BACK));
            let is_there = |id: &ObjectId| matches!(access.find(*id), Ok(Some(_)));
            !plan.removes.iter().all(is_there)
        }
        _ => true,
    })
}

/// Members that have refused to set an attribute: they have nothing to set back. Of several attributes some may be set.
fn untouched(plan: &ChangePlan, results: &[(&PresentMember, Result<TaskEffect>)]) -> Vec<String> {
    let is_refused = |result: &Result<TaskEffect>| matches!(result, Err(error) if error.scope() == Scope::Request);
    let refused = results.iter().filter(|(_, result)| is_refused(result));
    let serials = refused.map(|(present, _)| present.serial.clone());
    let is_set = |serial: &String| {
        let mut duties = plan.duties.iter().filter(|duty| duty.serial == *serial);
        duties.all(|duty| match &duty.now[..] {
            [MemberTask::Set { template, .. }] => template.0.len() <= 1,
            _ => false,
        })
    };
    serials.filter(is_set).collect()
}

/// The error of a change whose last line could not be written.
fn undecided(error: Error, call: &str) -> Error {
    error.at(format!(
        "{call} is finished or undone when the journal can be written again"
    ))
}

/// The error of a deletion that no member has confirmed.
fn unconfirmed(call: &str, results: &[(&PresentMember, Result<TaskEffect>)]) -> Error {
    too_few(format!(
        "{call}: no member has confirmed it. It is finished when the members answer again; hsmux status says who owes it. {}",
        reasons(results)
    ))
}

/// The caller's answer: the new objects as the first member shows them.
fn answer(
    operation: &Operation,
    plan: &ChangePlan,
    results: &[(&PresentMember, Result<TaskEffect>)],
) -> Outcome {
    if matches!(
        operation,
        Operation::Destroy { .. } | Operation::SetAttributes { .. }
    ) {
        return Outcome::Done;
    }
    let made = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().ok())
        .flat_map(|effect| &effect.made);
    let made: Vec<&Object> = made.collect();
    let first = |id: &ObjectId| made.iter().find(|object| object.id == *id);
    Outcome::Objects(
        plan.makes
            .iter()
            .filter_map(first)
            .map(|object| Made {
                session: None,
                object: (*object).clone(),
            })
            .collect(),
    )
}

/// The caller's own mistake, if it was one; else the number of members that did it, and the errors of the others.
fn too_few_did(call: &str, need: usize, results: &[(&PresentMember, Result<TaskEffect>)]) -> Error {
    let failures = || {
        results
            .iter()
            .filter_map(|(_, result)| result.as_ref().err())
    };
    if let Some(error) = failures().find(|error| error.scope() == Scope::Request) {
        return error.clone();
    }
    let failed = failures().count();
    too_few(format!(
        "{call} reached {} of {} members, {need} are needed; it was undone. {}",
        results.len() - failed,
        results.len(),
        reasons(results)
    ))
}

/// Why members have failed.
fn reasons(results: &[(&PresentMember, Result<TaskEffect>)]) -> String {
    let failures = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().err());
    let reasons: Vec<String> = failures.map(ToString::to_string).collect();
    reasons.join("; ")
}
