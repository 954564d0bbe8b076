//! The plan of a change: the tasks of each member.

use super::Coordinator;
use super::journal::{Intent, JournalState, MemberPart};
use super::member_task::MemberTask;
use super::members::{PoolMember, PoolMembers, PresentMember};
use super::token_access::{TimeLimit, TokenAccess};
use hsmux_state::json::{Cbor, Name};
use hsmux_token::{Attributes, Error, Kind, ObjectId, Result};
use std::time::Instant;

/// The members at the start of a change.
pub(super) struct Roster {
    /// In service, each token once.
    pub here: Vec<PresentMember>,
    /// Configured, but not in service: name, and serial number where it was seen before.
    pub away: Vec<(String, Option<String>)>,
    /// So many must do it.
    pub need: usize,
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
            away,
            need,
            deadline,
        };
        roster.enough(coordinator.replicas == 0)?;
        Ok(roster)
    }

    fn enough(&self, all: bool) -> Result<()> {
        let stranger = self.away.iter().find(|(_, serial)| serial.is_none());
        match stranger {
            Some((name, _)) if all => Err(too_few(format!(
                "{name} is away and was never seen, so it could not catch up: bring it back, \
                 remove it, or say how many members are enough (replicas = N)"
            ))),
            _ if self.here.len() < self.need => Err(too_few(format!(
                "{} of {} members are in service, and {} are needed; hsmux status says why",
                self.here.len(),
                self.here.len() + self.away.len(),
                self.need
            ))),
            _ => Ok(()),
        }
    }

    /// True if there is one member, and it is in service.
    pub fn alone(&self) -> bool {
        self.here.len() == 1 && self.away.is_empty()
    }

    /// Serial numbers of those that are away and known.
    pub fn away_serials(&self) -> impl Iterator<Item = &String> {
        self.away.iter().filter_map(|(_, serial)| serial.as_ref())
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
        }
    }

    /// Tasks that store a new key: it is nowhere yet. `access` is `None` for a member that is away. A member that died
    /// while it stored the key removes what it has half made, and stores it again. If `is_named`, its CKA_ID is new.
    pub fn storing(
        serial: &str,
        access: Option<TokenAccess>,
        works: Vec<MemberTask>,
        is_named: bool,
    ) -> Result<Self> {
        let (mut half_made, mut undo) = (Vec::new(), Vec::new());
        // Another object of that name must not go with it.
        let is_free = |passing| match access {
            _ if is_named => Ok(true),
            Some(access) => Ok(access.find(passing)?.is_none()),
            None => Ok(false),
        };
        for work in &works {
            let mut objects = work.makes().to_vec();
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
