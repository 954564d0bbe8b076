//! A change from its beginning: who is there, and what each has to do.

use super::Coordinator;
use super::journal::{JournalRecord, SyncPolicy};
use super::keys;
use super::members::{PoolMember, PoolMembers, PresentMember, present};
use super::objects;
use super::plan::{ChangePlan, Roster, too_few};
use super::replicated_key::ReplicatedKey;
use super::replicator::Replicator;
use super::token_access::TimeLimit;
use hsmux_config::LoneKeys;
use hsmux_state::json::Name;
use hsmux_token::{Error, Kind, Object, ObjectId, ObjectRef, Operation, Outcome, Result, Scope};
use std::time::Instant;

impl Coordinator {
    /// Carries out an operation that changes token objects ([`Operation::changes_token`]).
    ///
    /// Blocks: vendor's calls on every member. The answer is as of one token; objects are named as
    /// in the catalogue. [`Kind::TooFewMembers`] says that it was undone or not begun, or that no member has confirmed a
    /// deletion, which is finished later. [`Kind::Environment`] says that the journal could not be written: no member was
    /// touched, or the message says that the change is finished or undone later.
    pub fn change(
        &self,
        members: &dyn PoolMembers,
        operation: &Operation,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.refuse_ours(operation)?;
        let Some(_turn) = self.turn.lock_until(deadline) else {
            return Err(Error::pool(
                Kind::Deadline,
                format!(
                    "{}: other changes took until the deadline",
                    operation.call()
                ),
            ));
        };
        let mut roster = Roster::call(self, members, deadline)?;
        self.meet(&roster)?;
        self.expire_envelopes();
        self.decide(&roster.here, members)?;
        let mut renewed = self.settle_all(&roster.here, members);
        match self.log_in(&roster, members) {
            Ok(anew) => renewed |= anew,
            // Without these means no key goes from one to another; all else can be tried.
            Err(error) if keys::makes_key(operation) && !roster.alone() => return Err(error),
            Err(error) => tracing::debug!(%error, "whether all members are logged in is not known"),
        }
        if renewed {
            roster = Roster::call(self, members, deadline)?;
        }
        let (operation, source) = localize(operation, members)?;
        if roster.alone() {
            return self.directly(members, &roster.here[0], &operation, deadline);
        }
        let change = self.journal.begin(operation.call())?;
        let answer = self.plan_and_carry(change, members, &mut roster, &operation, source.as_ref());
        // Also those that have come into service meanwhile.
        self.settle_all(&present(members), members);
        self.journal.drop_keys(false);
        answer
    }

    /// Refuses hsmux's own keys: they are hidden, but an application may still name them.
    fn refuse_ours(&self, operation: &Operation) -> Result<()> {
        for object in operation.objects() {
            if let ObjectRef::Token(id) = object
                && self.transport.is_ours(*id)
            {
                return Err(Error::request(
                    Kind::UnknownObject,
                    format!("{}: no {id:?}", operation.call()),
                ));
            }
        }
        Ok(())
    }

    fn plan_and_carry(
        &self,
        change: u64,
        members: &dyn PoolMembers,
        roster: &mut Roster,
        operation: &Operation,
        source: Option<&PresentMember>,
    ) -> Result<Outcome> {
        match self.plan_in_order(change, members, roster, operation, source) {
            Ok(plan) => self.carry_out(change, members, roster, operation, &plan),
            Err(error) if self.may_stay_alone(operation, &error) => {
                tracing::warn!(%error, "the new key is not copied to other members");
                self.on_one(members, roster, operation, source)
            }
            Err(error) => Err(error),
        }
    }

    /// Plans a change. Members in service that still owe an earlier one of the same objects do it afterwards.
    fn plan_in_order(
        &self,
        change: u64,
        members: &dyn PoolMembers,
        roster: &mut Roster,
        operation: &Operation,
        source: Option<&PresentMember>,
    ) -> Result<ChangePlan> {
        let named = operation.objects().filter_map(|object| match object {
            ObjectRef::Token(id) => Some(*id),
            ObjectRef::Session(_) => None,
        });
        let named: Vec<_> = named.collect();
        if let Operation::Destroy { .. } = operation {
            // It waits for nothing; but a member may have yet to copy the object, or to rename another one of that name.
            let mut debtors = self.journal.read(|state| state.debtors(&named));
            debtors.retain(|debtor| debtor.needs);
            roster.postpone(&debtors);
        } else if !keys::makes_key(operation) {
            self.set_debtors_aside(roster, &named)?;
        }
        let mut plan = self.plan(change, members, roster, operation, source)?;
        if plan.begun {
            self.refuse_owed(change, members, roster, &plan)?;
        } else if self.set_debtors_aside(roster, &plan.makes)? {
            plan = self.plan(change, members, roster, operation, source)?;
        }
        if let Some(becomes) = plan.new_name() {
            objects::is_free(roster, becomes)?;
        }
        for duty in &mut plan.duties {
            duty.is_later = roster.later_serials().any(|serial| *serial == duty.serial);
        }
        Ok(plan)
    }

    /// A key that exists already on one member cannot wait for what others owe of one of its name: it is taken back.
    fn refuse_owed(
        &self,
        change: u64,
        members: &dyn PoolMembers,
        roster: &Roster,
        plan: &ChangePlan,
    ) -> Result<()> {
        let debtors = self.journal.read(|state| state.debtors(&plan.makes));
        let is_debtor = |member: &&PresentMember| debtors.iter().any(|d| d.serial == member.serial);
        let Some(PresentMember { name: member, .. }) = roster.here.iter().find(is_debtor) else {
            return Ok(());
        };
        let error = too_few(format!(
            "{member} still owes an earlier change of the same key; hsmux status says why"
        ));
        self.take_back(change, members, roster, Vec::new(), &error)?;
        Err(error)
    }

    /// Says whether there are some.
    fn set_debtors_aside(&self, roster: &mut Roster, objects: &[ObjectId]) -> Result<bool> {
        let debtors = self.journal.read(|state| state.debtors(objects));
        roster.set_aside(&debtors)
    }

    fn plan(
        &self,
        change: u64,
        members: &dyn PoolMembers,
        roster: &Roster,
        operation: &Operation,
        source: Option<&PresentMember>,
    ) -> Result<ChangePlan> {
        if let Some(error) = keys::only_on_one(operation) {
            // Before a key is made that would be taken back.
            return Err(error);
        }
        if !keys::makes_key(operation) {
            return objects::plan(roster, operation, source);
        }
        match self.replicator_of(roster) {
            Ok(replicator) => ReplicatedKey {
                coordinator: self,
                replicator,
                members,
                roster,
                change,
            }
            .plan(operation, source),
            Err(why) => {
                let planned = keys::plan(self, roster, operation, source);
                planned.map_err(|error| no_way(error, why.as_deref()))
            }
        }
    }

    /// True if a key that cannot be copied may exist on one member: one replica is enough, or `replicas` is not set
    /// and no key of its kind can be copied.
    fn may_stay_alone(&self, operation: &Operation, error: &Error) -> bool {
        // All else is on several members, and a change of it reaches them all.
        let is_alone = keys::makes_key(operation) || error.kind() == Kind::Unsupported;
        let is_enough = self.replicas == 1 && error.scope() == Scope::Request && is_alone;
        is_enough || self.lone_keys == LoneKeys::Made && keys::stays_where_it_is_made(error)
    }

    /// On the first member that can.
    fn on_one(
        &self,
        members: &dyn PoolMembers,
        roster: &Roster,
        operation: &Operation,
        source: Option<&PresentMember>,
    ) -> Result<Outcome> {
        let mut refused = None;
        for present in source.map_or(&roster.here[..], std::slice::from_ref) {
            match self.directly(members, present, operation, roster.deadline) {
                Err(error) if keys::lacks_what_it_takes(&error) => {
                    refused.get_or_insert(error);
                }
                answer => return answer,
            }
        }
        Err(refused.unwrap_or_else(|| too_few("no member is in service")))
    }

    /// The members' own means, where all of them have these; otherwise who lacks them, and why.
    fn replicator_of(
        &self,
        roster: &Roster,
    ) -> std::result::Result<&dyn Replicator, Option<String>> {
        let replicator = self.replicator.as_deref().ok_or(None)?;
        for present in &roster.here {
            let served = replicator.serves(&present.token.info());
            served.map_err(|why| Some(format!("{}: {why}", present.name)))?;
        }
        Ok(replicator)
    }

    /// Every worker is logged in: one that was logged out by another program is connected anew, by the rules of the
    /// PIN breaker. Says whether one was. Only members with such means of their own can tell.
    fn log_in(&self, roster: &Roster, members: &dyn PoolMembers) -> Result<bool> {
        let mut renewed = false;
        let Ok(replicator) = self.replicator_of(roster) else {
            return Ok(false);
        };
        for present in &roster.here {
            renewed |= log_in(replicator, present, members)?;
        }
        Ok(renewed)
    }

    /// The same for members of which some may lack such means.
    pub(super) fn log_in_each<'a>(
        &self,
        chosen: impl Iterator<Item = &'a PoolMember>,
        members: &dyn PoolMembers,
    ) -> bool {
        let Some(replicator) = self.replicator.as_deref() else {
            return false;
        };
        let mut renewed = false;
        for present in chosen.filter_map(PresentMember::of) {
            if replicator.serves(&present.token.info()).is_ok() {
                let anew = log_in(replicator, &present, members);
                renewed |= anew.unwrap_or_else(|error| {
                    tracing::debug!(%error, "whether it is logged in is not known");
                    false
                });
            }
        }
        renewed
    }

    /// Objects of these names are not, or not any more, those of which the journal says how they were made.
    fn forget_origins(&self, objects: &[ObjectId]) -> Result<()> {
        let known = self.journal.read(|state| -> Vec<Name> {
            let names = objects.iter().copied().map(Name);
            names
                .filter(|name| state.origins.contains_key(name))
                .collect()
        });
        if known.is_empty() {
            return Ok(());
        }
        let record = JournalRecord::Unexplained { objects: known };
        self.journal.append(record, SyncPolicy::Now)
    }

    /// On the one member that is concerned, without a plan.
    fn directly(
        &self,
        members: &dyn PoolMembers,
        present: &PresentMember,
        operation: &Operation,
        deadline: Instant,
    ) -> Result<Outcome> {
        if let Operation::Destroy {
            object: ObjectRef::Token(id),
        } = operation
        {
            self.forget_origins(&[*id])?;
        }
        let outcome = present
            .token
            .execute(operation, deadline)
            .map_err(|e| e.at(&present.name))?;
        let mut made: Vec<Object> = match &outcome {
            Outcome::Objects(made) => made
                .iter()
                .filter(|made| made.session.is_none())
                .map(|made| made.object.clone())
                .collect(),
            _ => Vec::new(),
        };
        let new: Vec<_> = made.iter().map(|object| object.id).collect();
        self.forget_origins(&new)?;
        let mut gone = Vec::new();
        match operation {
            Operation::Destroy {
                object: ObjectRef::Token(id),
            } => gone.push(*id),
            Operation::SetAttributes {
                object: ObjectRef::Token(id),
                ..
            } => {
                // It answers by its old name, and says the one that it has now.
                let access = present.access(TimeLimit::Until(deadline));
                made.extend(access.find_renamed(*id)?);
                gone.extend((!made.iter().any(|object| object.id == *id)).then_some(*id));
            }
            _ => {}
        }
        self.show_origins(&mut made);
        members.changed(&present.name, &made, &gone);
        Ok(outcome)
    }
}

/// Connects a member anew if another program has logged it out; says whether that was so.
fn log_in(
    replicator: &dyn Replicator,
    present: &PresentMember,
    members: &dyn PoolMembers,
) -> Result<bool> {
    if replicator.is_logged_in(&present.token.info())? {
        return Ok(false);
    }
    tracing::info!(member = present.name, "was logged out by another program");
    members.renew(&present.name);
    Ok(true)
}

/// Tells both reasons if a key can go neither wrapped nor by the members' own means.
fn no_way(error: Error, why: Option<&str>) -> Error {
    match why {
        Some(why) if error.kind() == Kind::Unsupported && error.scope() == Scope::Request => {
            let message =
                format!("{error}; SmartCard-HSMs would take it under their DKEK, but {why}");
            Error::request(Kind::Unsupported, message)
        }
        _ => error,
    }
}

/// Session objects get their owner's numbers; the owner is then the only member that can begin.
fn localize(
    operation: &Operation,
    members: &dyn PoolMembers,
) -> Result<(Operation, Option<PresentMember>)> {
    let mut operation = operation.clone();
    let mut source: Option<PresentMember> = None;
    for reference in operation.objects_mut() {
        let ObjectRef::Session(session) = reference else {
            continue;
        };
        let (member, local) = members.home(session)?;
        let present = PresentMember::of(&member).ok_or_else(|| {
            Error::lost(format!("{}: went with its session objects", member.name))
        })?;
        if source.as_ref().is_some_and(|s| s.serial != present.serial) {
            return Err(Error::request(
                Kind::Unsupported,
                "the session objects of one operation live on different members",
            ));
        }
        *reference = ObjectRef::Session(local);
        source = Some(present);
    }
    Ok((operation, source))
}
