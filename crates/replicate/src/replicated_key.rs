//! New keys of tokens that have a [`Replicator`]: made on one as it was asked, taken to the others.
//!
//! Such a key is a token object from the first, so the journal is told of it before it is made: by what
//! will tell it from all others there.

use super::Coordinator;
use super::journal::{JournalRecord, SyncPolicy, seconds};
use super::keys::lacks_what_it_takes;
use super::member_task::MemberTask;
use super::members::{PoolMembers, PresentMember};
use super::plan::{ChangePlan, Duty, Roster, too_few};
use super::replicator::Replicator;
use hsmux_token::ck::{CKA_ID, CKA_TOKEN, CKR_TEMPLATE_INCONSISTENT};
use hsmux_token::{Attributes, Error, Kind, ObjectId, Operation, Result};

/// A key that is about to be made.
pub(super) struct ReplicatedKey<'a> {
    pub coordinator: &'a Coordinator,
    pub replicator: &'a dyn Replicator,
    pub members: &'a dyn PoolMembers,
    pub roster: &'a Roster,
    /// Its number in the journal.
    pub change: u64,
}

impl ReplicatedKey<'_> {
    /// Makes the key on the first member that can, and plans its copies. `source` is set where the
    /// operation works on session objects of one member.
    pub fn plan(
        &self,
        operation: &Operation,
        source: Option<&PresentMember>,
    ) -> Result<ChangePlan> {
        let tokens: Vec<_> = self.roster.here.iter().map(|p| p.token.info()).collect();
        let tokens: Vec<_> = tokens.iter().map(AsRef::as_ref).collect();
        self.replicator.check(&tokens)?;
        let (operation, id) = named(operation)?;
        let mut refused = None;
        for present in source.map_or(&self.roster.here[..], std::slice::from_ref) {
            match self.on(present, &operation, &id) {
                // Nothing was made; another member may hold the base key, or have the mechanism.
                Err(error) if lacks_what_it_takes(&error) => {
                    refused.get_or_insert(error);
                }
                planned => return planned,
            }
        }
        Err(refused.unwrap_or_else(|| too_few("no member is in service")))
    }

    fn on(&self, present: &PresentMember, operation: &Operation, id: &[u8]) -> Result<ChangePlan> {
        let expected = self.replicator.expect(&present.token.info(), id)?;
        let undo = vec![MemberTask::Sweep {
            expected: expected.clone(),
        }];
        let alone = ChangePlan {
            // A crash before there are copies takes it back.
            need: usize::MAX,
            duties: vec![Duty::new(&present.serial, Vec::new(), undo.clone())],
            ..ChangePlan::default()
        };
        let (change, intent) = (self.change, alone.intent(operation.call()));
        let journal = &self.coordinator.journal;
        journal.append(
            JournalRecord::Intent {
                change,
                intent,
                at: seconds(),
            },
            SyncPolicy::Now,
        )?;
        let planned = self.make(present, operation).and_then(|makes| {
            let key = self.replicator.take(&present.token.info(), &expected)?;
            self.copies(
                present,
                &makes,
                &MemberTask::Install {
                    makes: makes.clone(),
                    key,
                },
                id,
                undo,
            )
        });
        planned.or_else(|error| {
            let (members, roster) = (self.members, self.roster);
            self.coordinator
                .take_back(change, members, roster, Vec::new(), &error)?;
            Err(error)
        })
    }

    /// The new objects' names.
    fn make(&self, present: &PresentMember, operation: &Operation) -> Result<Vec<ObjectId>> {
        let made = self.roster.access(present).run(operation)?.into_objects()?;
        let nameless = |id: ObjectId, attributes: &Attributes| {
            id == hsmux_software::unidentified(&present.serial, attributes)
        };
        for object in made.iter().map(|made| &made.object) {
            if nameless(object.id, &object.attributes) {
                return Err(Error::request(
                    Kind::Unsupported,
                    format!(
                        "{}: its module does not say what tells the new {} from others, so its \
                         copies could not be told to be the same",
                        present.name,
                        object.id.class.name()
                    ),
                ));
            }
        }
        Ok(made.iter().map(|made| made.object.id).collect())
    }

    /// The same for every member: the one that has the key does nothing for it.
    fn copies(
        &self,
        born_on: &PresentMember,
        makes: &[ObjectId],
        install: &MemberTask,
        id: &[u8],
        mut sweep: Vec<MemberTask>,
    ) -> Result<ChangePlan> {
        let mut plan = ChangePlan {
            makes: makes.to_vec(),
            need: self.roster.need,
            begun: true,
            ..ChangePlan::default()
        };
        for present in &self.roster.here {
            let undo = if present.serial == born_on.serial {
                std::mem::take(&mut sweep)
            } else {
                let expected = self.replicator.expect(&present.token.info(), id)?;
                vec![MemberTask::Sweep { expected }]
            };
            plan.duties.push(Duty {
                asks: true,
                ..Duty::new(&present.serial, vec![install.clone()], undo)
            });
        }
        for serial in self.roster.later_serials() {
            // It has had no part in it when it has to be taken back.
            let objects = makes.to_vec();
            let undo = vec![MemberTask::Remove { objects }];
            plan.duties
                .push(Duty::new(serial, vec![install.clone()], undo));
        }
        Ok(plan)
    }
}

/// The operation with a CKA_ID, by which the key is found: a random one where the caller gave none.
fn named(operation: &Operation) -> Result<(Operation, Vec<u8>)> {
    let mut operation = operation.clone();
    let templates = match &mut operation {
        Operation::GeneratePair { private, .. } if private.flag(CKA_TOKEN) != Some(true) => {
            return Err(Error::request(
                Kind::Vendor(CKR_TEMPLATE_INCONSISTENT),
                "C_GenerateKeyPair: a private session key with a public token object is not offered",
            ));
        }
        Operation::GeneratePair {
            public, private, ..
        } => vec![private, public],
        Operation::Generate { template, .. }
        | Operation::Derive { template, .. }
        | Operation::Unwrap { template, .. }
        | Operation::Copy { template, .. }
        | Operation::Create { template, .. } => vec![template],
        other => {
            let message = format!("{} makes no key", other.call());
            return Err(Error::request(Kind::Unsupported, message));
        }
    };
    let given = templates.iter().find_map(|template| {
        let id = template.get(CKA_ID).filter(|id| !id.is_empty());
        id.map(<[u8]>::to_vec)
    });
    let id = match given {
        Some(id) => id,
        None => super::random::<16>()?.to_vec(),
    };
    for template in templates {
        if template.get(CKA_ID).is_none_or(<[u8]>::is_empty) {
            template.set(CKA_ID, id.clone());
        }
    }
    Ok((operation, id))
}
