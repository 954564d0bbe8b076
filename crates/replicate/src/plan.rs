//! The plan of a change: the tasks of each member.

use super::Coordinator;
use super::journal::{Debtor, Intent, JournalState, MemberPart};
use super::member_task::MemberTask;
use super::members::{PoolMember, PoolMembers, PresentMember};
use super::token_access::{TimeLimit, TokenAccess};
use hsmux_state::json::{Cbor, Name};
use hsmux_token::{Attributes, Class, Error, Kind, ObjectId, Result};
use std::time::Instant;

/// The members at the start of a change.
pub(super) struct Roster {
    /// In service, each token once.
    pub here: Vec<PresentMember>,
    /// In service, but they owe an earlier change of the same objects: they do this one after it.
    pub aside: Vec<PresentMember>,
    /// Configured, but not in service: name, and serial number where it was seen before.
    pub away: Vec<(String, Option<String>)>,
    /// So many must do it.
    pub need: usize,
    /// So many of those aside have the object.
    holders_aside: usize,
    /// All that can must do it, without a number in the configuration.
    all: bool,
    pub deadline: Instant,
}

impl Roster {
    /// Asks the pool; refuses when too few members are there, or when one that has to be reached
    /// could not catch up.
    pub fn call(
        coordinator: &Coordinator,
        members: &dyn PoolMembers,
        deadline: Instant,
    ) -> Result<Self> {
        let here = super::members::present(members);
        let serial_of = |member: &str| {
            let serials = |state: &JournalState| state.serials.get(member).cloned();
            coordinator.journal.read(serials)
        };
        let away = members.members().into_iter().filter(|m| m.token.is_none());
        let away: Vec<_> = away
            .map(|PoolMember { name, .. }| {
                let serial = serial_of(&name);
                (name, serial)
            })
            .collect();
        let need = match coordinator.replicas {
            0 => here.len().max(1),
            replicas => replicas,
        };
        let roster = Self {
            here,
            aside: Vec::new(),
            away,
            need,
            holders_aside: 0,
            all: coordinator.replicas == 0,
            deadline,
        };
        roster.enough()?;
        Ok(roster)
    }

    /// Has members that owe something do the change later. Says whether there are some.
    pub fn postpone(&mut self, debtors: &[Debtor]) -> bool {
        let debt = |present: &PresentMember| debtors.iter().find(|d| d.serial == present.serial);
        let owes = |present: &PresentMember| debt(present).is_some();
        let (aside, here): (Vec<_>, _) = self.here.drain(..).partition(owes);
        self.here = here;
        let holders = aside.iter().filter_map(debt).filter(|d| d.sets);
        self.holders_aside += holders.count();
        let is_postponed = !aside.is_empty();
        self.aside.extend(aside);
        is_postponed
    }

    /// The same, if enough others are there.
    pub fn set_aside(&mut self, debtors: &[Debtor]) -> Result<bool> {
        if !self.postpone(debtors) {
            return Ok(false);
        }
        if self.all {
            // Not without those that have the object.
            self.need = (self.here.len() + self.holders_aside).max(1);
        }
        self.enough()?;
        Ok(true)
    }

    fn enough(&self) -> Result<()> {
        let stranger = self.away.iter().find(|(_, serial)| serial.is_none());
        let all = self.here.len() + self.aside.len() + self.away.len();
        match stranger {
            Some((name, _)) if self.all => Err(too_few(format!(
                "{name} is away and was never seen, so it could not catch up: bring it back, \
                 remove it, or say how many members are enough (replicas = N)"
            ))),
            _ if self.here.len() >= self.need => Ok(()),
            _ if self.aside.is_empty() => Err(too_few(format!(
                "{} of {all} members are in service, and {} are needed; hsmux status says why",
                self.here.len(),
                self.need
            ))),
            _ => Err(self.too_few_now(self.here.len(), self.need)),
        }
    }

    /// The error of a change for which members would be needed that are aside.
    pub fn too_few_now(&self, able: usize, need: usize) -> Error {
        let names: Vec<_> = self.aside.iter().map(|p| p.name.as_str()).collect();
        too_few(format!(
            "{able} members can do it now, and {need} are needed. These still owe an earlier change of the same object: \
             {}; hsmux status says why",
            names.join(", ")
        ))
    }

    /// So many must change an object that so many of those here have. An error if these are too few.
    pub fn need_of(&self, holders: usize) -> Result<usize> {
        let need = self.need.min(holders + self.holders_aside);
        if holders < need {
            return Err(self.too_few_now(holders, need));
        }
        Ok(need)
    }

    /// True if there is one member, and it is in service.
    pub fn alone(&self) -> bool {
        self.here.len() == 1 && self.aside.is_empty() && self.away.is_empty()
    }

    /// Serial numbers of those that do it later: of members aside, and of those that are away and known.
    pub fn later_serials(&self) -> impl Iterator<Item = &String> {
        self.later().filter_map(|(_, serial)| serial)
    }

    /// Those that do it later: name, and serial number if it is known.
    pub fn later(&self) -> impl Iterator<Item = (&String, Option<&String>)> {
        let aside = self.aside.iter().map(|p| (&p.name, Some(&p.serial)));
        // A token that has moved is here by another name.
        let is_here = |serial: &String| {
            let mut here = self.here.iter().chain(&self.aside);
            here.any(|present| present.serial == *serial)
        };
        let away = self.away.iter();
        let away = away.filter(move |(_, serial)| !serial.as_ref().is_some_and(is_here));
        aside.chain(away.map(|(name, serial)| (name, serial.as_ref())))
    }

    /// A member, until the change's deadline.
    pub fn access<'a>(&self, present: &'a PresentMember) -> TokenAccess<'a> {
        present.access(TimeLimit::Until(self.deadline))
    }
}

impl PresentMember {
    /// The token, for operations with this time limit.
    pub fn access(&self, limit: TimeLimit) -> TokenAccess<'_> {
        TokenAccess {
            name: &self.name,
            token: &*self.token,
            limit,
        }
    }
}

/// The error of a change that was refused or undone for lack of members.
pub(super) fn too_few(why: impl Into<String>) -> Error {
    Error::pool(Kind::TooFewMembers, why)
}

/// A planned change.
#[derive(Default)]
pub(super) struct ChangePlan {
    /// The objects that exist afterwards, in the order of the answer.
    pub makes: Vec<ObjectId>,
    /// The objects that are gone afterwards.
    pub removes: Vec<ObjectId>,
    /// How keys of these were made, where their copies do not say.
    pub origins: Vec<(ObjectId, Attributes)>,
    /// So many must do it: of a change to what is there, no more than hold it.
    pub need: usize,
    /// The tasks of each member.
    pub duties: Vec<Duty>,
    /// True if its first object exists already: it is removed if the plan fails.
    pub begun: bool,
}

/// One member's part.
pub(super) struct Duty {
    /// The token.
    pub serial: String,
    /// The tasks for now.
    pub now: Vec<MemberTask>,
    /// The tasks for later, if the member cannot do them now. They differ where a value must not be in the journal.
    pub later: Vec<MemberTask>,
    /// The tasks that undo them.
    pub undo: Vec<MemberTask>,
    /// True if some of it may exist already.
    pub asks: bool,
    /// The member does it after it has paid what it owes, or has come back. It has done nothing until then.
    pub is_later: bool,
}

/// What is known of a key that is to be stored.
#[derive(Clone, Copy)]
pub(super) struct NewKey {
    /// It was made just now: no member has it.
    pub is_generated: bool,
    /// Its CKA_ID is new.
    pub has_new_id: bool,
}

impl Duty {
    /// Tasks that can be in the journal unchanged.
    pub fn new(serial: &str, works: Vec<MemberTask>, undo: Vec<MemberTask>) -> Self {
        Self {
            serial: serial.to_owned(),
            later: works.clone(),
            now: works,
            undo,
            asks: false,
            is_later: false,
        }
    }

    /// Tasks that store a key. `access` is `None` for a member that is away. A member that died while it stored the key
    /// removes what it has half made, and stores it again. It keeps what it has already of a key that is not `new`.
    pub fn storing(
        serial: &str,
        access: Option<TokenAccess>,
        works: Vec<MemberTask>,
        new: NewKey,
    ) -> Result<Self> {
        let (mut half_made, mut undo) = (Vec::new(), Vec::new());
        let mut asks = false;
        // Another object of that name must not go with it.
        let is_free = |passing| match access {
            _ if new.has_new_id => Ok(true),
            Some(access) => Ok(access.find(passing)?.is_none()),
            None => Ok(false),
        };
        let is_there = |makes: ObjectId| match access {
            // Its CKA_ID is part of a secret key's name.
            _ if new.is_generated || new.has_new_id && makes.class == Class::SECRET_KEY => {
                Ok(false)
            }
            Some(access) => Ok(access.find(makes)?.is_some()),
            None => Ok(false),
        };
        for work in &works {
            let mut objects = Vec::new();
            for makes in work.makes() {
                if !is_there(*makes)? {
                    objects.push(*makes);
                }
            }
            if objects.is_empty() {
                asks = true;
                continue;
            }
            if let Some(passing) = work.passing_name(serial)
                && is_free(passing)?
            {
                objects.push(passing);
                let objects = vec![passing];
                half_made.push(MemberTask::Remove { objects });
            }
            undo.push(MemberTask::Remove { objects });
        }
        Ok(Self {
            later: [half_made, works.clone()].concat(),
            asks,
            ..Self::new(serial, works, undo)
        })
    }

    /// Names that its objects have no longer once they are made: somebody who has looked at the token meanwhile
    /// knows them by these.
    pub fn passing_names(&self) -> Vec<ObjectId> {
        let works = self.now.iter().chain(&self.later);
        let made: Vec<_> = works.flat_map(MemberTask::makes).collect();
        let undone = self.undo.iter().filter_map(|work| match work {
            MemberTask::Remove { objects } => Some(objects),
            _ => None,
        });
        let passing = undone.flatten().filter(|id| !made.contains(id));
        passing.copied().collect()
    }

    /// Works that make objects which the member may have: those it keeps, also if the change is
    /// taken back.
    pub fn adding(
        serial: &str,
        access: Option<TokenAccess>,
        works: Vec<MemberTask>,
    ) -> Result<Self> {
        let mut undo = Vec::new();
        for makes in works.iter().flat_map(MemberTask::makes) {
            let there = access
                .map_or(Ok(None), |access| access.find(*makes))?
                .is_some();
            if !there {
                let objects = vec![*makes];
                undo.push(MemberTask::Remove { objects });
            }
        }
        Ok(Self {
            asks: true,
            ..Self::new(serial, works, undo)
        })
    }
}

impl ChangePlan {
    /// True for a deletion: it is never undone once a token may have done it.
    pub fn is_final(&self) -> bool {
        !self.removes.is_empty() && self.duties.iter().all(|duty| duty.undo.is_empty())
    }

    /// The name that an object gets in place of another one.
    pub fn new_name(&self) -> Option<ObjectId> {
        let is_rename = !self.removes.is_empty() && !self.is_final();
        self.makes.first().copied().filter(|_| is_rename)
    }

    /// Objects that are not there afterwards.
    pub fn gone(&self) -> Vec<ObjectId> {
        let gone = self.removes.iter().filter(|id| !self.makes.contains(id));
        gone.copied().collect()
    }

    /// The journal's form.
    pub fn intent(&self, call: &str) -> Intent {
        let encoded = |works: &[MemberTask]| works.iter().cloned().map(Cbor).collect();
        let names = |ids: &[ObjectId]| ids.iter().copied().map(Name).collect();
        Intent {
            call: call.to_owned(),
            need: self.need,
            parts: self
                .duties
                .iter()
                .map(|duty| MemberPart {
                    serial: duty.serial.clone(),
                    works: encoded(&duty.later),
                    undo: encoded(&duty.undo),
                    later: duty.is_later,
                })
                .collect(),
            makes: names(&self.makes),
            removes: names(&self.removes),
            origins: self
                .origins
                .iter()
                .map(|(id, told)| (Name(*id), Cbor(told.clone())))
                .collect(),
        }
    }
}
