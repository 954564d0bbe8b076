//! Existing keys to more tokens, with what belongs to them.

use super::Coordinator;
use super::channel::{Channel, Opener, stays};
use super::in_parallel::in_parallel;
use super::journal::{JournalRecord, JournalState, SyncPolicy};
use super::member_task::MemberTask;
use super::members::{PoolMember, PresentMember};
use super::prove;
use super::template;
use super::token_access::{TimeLimit, TokenAccess};
use hsmux_software::PublicKey;
use hsmux_state::json::Name;
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Blob, Class, Error, Kind, Object, ObjectId, Result, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long one operation of a clone may take.
const EACH: Duration = Duration::from_secs(60);

/// So many objects are noted in the journal together.
const NOTE_BATCH: usize = 100;

/// The objects to clone, and how.
#[derive(Clone, Default, Debug)]
pub struct Selection {
    /// These, each key with its other half and its certificates; `None`: everything.
    pub objects: Option<Vec<ObjectId>>,
    /// Copies that can be wrapped again (CKA_EXTRACTABLE); otherwise only their source can be.
    pub extractable: bool,
}

/// The result for one object on one target.
#[derive(Clone, Debug)]
pub struct ClonedObject {
    /// The target.
    pub target: String,
    /// The object.
    pub object: ObjectId,
    /// Its label, for messages.
    pub label: String,
    /// The outcome.
    pub outcome: CloneOutcome,
}

/// The outcome for an object.
#[derive(Clone, Debug)]
pub enum CloneOutcome {
    /// It is there now, and has proved itself.
    Copied,
    /// It was there before, and has proved itself.
    There,
    /// It is not there, or is another: why, and what to do.
    Failed(Error),
}

impl Coordinator {
    /// Copies objects of `source` to all targets at the same time, and proves each copy.
    ///
    /// A key travels wrapped: under `wrapping`, an AES key that source and target both hold, or
    /// under the target's pinned transport key. A copy that is there already is proved and left, so a
    /// new run continues a broken one. `progress` is told of each object on each target, from
    /// the target's thread. The error is for what ends the run on every target; what one object or
    /// one target refuses is in the answer.
    pub fn clone_keys(
        &self,
        source: &PoolMember,
        targets: &[PoolMember],
        selection: &Selection,
        wrapping: Option<ObjectId>,
        progress: &(dyn Fn(&ClonedObject) + Sync),
    ) -> Result<Vec<ClonedObject>> {
        let source = present(source)?;
        let targets = targets.iter().map(present).collect::<Result<Vec<_>>>()?;
        if targets.iter().any(|target| target.serial == source.serial) {
            return Err(Error::request(
                Kind::Invalid,
                format!("{}: source and target are the same token", source.name),
            ));
        }
        let snapshot = source.token.objects().map_err(|e| e.at(&source.name))?;
        let run = CloneRun {
            coordinator: self,
            source: source.access(TimeLimit::Each(EACH)),
            objects: selected(&snapshot.objects, selection)?,
            buried: self
                .journal
                .read(|state| state.tombstones.keys().copied().collect()),
            extractable: selection.extractable,
            wrapping,
            progress,
        };
        let results = in_parallel(
            self.threads,
            &targets,
            |target| target,
            |target| run.to(target),
        );
        let mut all = Vec::new();
        for (target, result) in targets.iter().zip(results) {
            match result {
                Ok(cloned) => all.extend(cloned),
                Err(error) => all.extend(run.none_on(target, &error)),
            }
        }
        Ok(all)
    }
}

/// One source, many targets.
struct CloneRun<'a> {
    coordinator: &'a Coordinator,
    source: TokenAccess<'a>,
    /// In the order in which they are copied.
    objects: Vec<&'a Object>,
    /// Tombstones at the start: cloning lifts these, but not one that is set meanwhile.
    buried: BTreeSet<Name>,
    extractable: bool,
    wrapping: Option<ObjectId>,
    progress: &'a (dyn Fn(&ClonedObject) + Sync),
}

impl CloneRun<'_> {
    /// All objects to one target.
    fn to(&self, target: &PresentMember) -> Result<Vec<ClonedObject>> {
        let access = target.access(TimeLimit::Each(EACH));
        let there = target.token.objects().map_err(|e| e.at(&target.name))?;
        let there: BTreeMap<ObjectId, &Object> = there.objects.iter().map(|o| (o.id, o)).collect();
        let mut way = CloneTarget {
            run: self,
            target,
            channel: None,
            opener: Opener::new(access),
        };
        if self.wrapping.is_some() {
            // A target that cannot take keys stays unchanged, without public halves.
            way.channel()?;
        }
        let (mut all, mut placed) = (Vec::new(), Vec::new());
        for object in &self.objects {
            let result = match there.get(&object.id) {
                _ if self.is_to_change(target, object.id) => Err(Error::token(
                    Kind::TooFewMembers,
                    format!(
                        "{}: it still owes a change of {:?}; hsmux status says why",
                        target.name, object.id
                    ),
                )),
                Some(there) => {
                    prove::copy(access, there, Some(self.source)).map(|()| CloneOutcome::There)
                }
                None => way.carry(object).map(|()| CloneOutcome::Copied),
            };
            let ends = matches!(&result, Err(error) if error.ends_connection());
            if result.is_ok() {
                placed.push(Name(object.id));
            }
            let outcome = result.unwrap_or_else(CloneOutcome::Failed);
            all.push(self.tell(target, object, outcome));
            if placed.len() >= NOTE_BATCH || ends {
                self.note(target, std::mem::take(&mut placed))?;
            }
            if ends {
                break;
            }
        }
        self.note(target, placed)?;
        Ok(all)
    }

    /// The target owes a removal or another name: a copy would go with the object that it has.
    fn is_to_change(&self, target: &PresentMember, object: ObjectId) -> bool {
        let debtors = |state: &JournalState| state.debtors(&[object]);
        let debtors = self.coordinator.journal.read(debtors);
        let mut its = debtors
            .iter()
            .filter(|debtor| debtor.serial == target.serial);
        its.any(|debtor| debtor.sets || debtor.removes)
    }

    fn note(&self, target: &PresentMember, objects: Vec<Name>) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let serial = target.serial.clone();
        let record = JournalRecord::Placed { serial, objects };
        self.coordinator.journal.append(record, SyncPolicy::Now)
    }

    fn tell(&self, target: &PresentMember, object: &Object, outcome: CloneOutcome) -> ClonedObject {
        let cloned = ClonedObject {
            target: target.name.clone(),
            object: object.id,
            label: object.attributes.text(CKA_LABEL).unwrap_or_default(),
            outcome,
        };
        (self.progress)(&cloned);
        cloned
    }

    /// For a target that cannot be used at all.
    fn none_on(&self, target: &PresentMember, error: &Error) -> Vec<ClonedObject> {
        let failed =
            |object: &&Object| self.tell(target, object, CloneOutcome::Failed(error.clone()));
        self.objects.iter().map(failed).collect()
    }

    /// The work that puts an object on a target.
    fn work(&self, object: &Object, way: &mut CloneTarget) -> Result<MemberTask> {
        let makes = object.id;
        let found = &object.attributes;
        if !matches!(makes.class, Class::PRIVATE_KEY | Class::SECRET_KEY) {
            let template = template::created(found);
            return Ok(MemberTask::Create { makes, template });
        }
        if found.flag(CKA_EXTRACTABLE) == Some(false) {
            return Err(stays(self.source.name));
        }
        let asked = Attributes::default().with_flag(CKA_EXTRACTABLE, self.extractable);
        let mut template = template::copy(&asked, found);
        let mut check_value = None;
        if makes.class == Class::SECRET_KEY {
            check_value = Some(known(object, found.get(CKA_CHECK_VALUE))?);
        } else {
            let half = PublicKey::from_attributes(found).ok();
            let half = known(object, half.as_ref().map(PublicKey::spki))?;
            template.set(CKA_PUBLIC_KEY_INFO, half.0);
        }
        Ok(MemberTask::Unwrap {
            makes,
            envelope: way.channel()?.seal(makes.into())?,
            template,
            check_value,
        })
    }
}

/// The value that identifies a key; without it a copy cannot be recognised.
fn known(object: &Object, value: Option<&[u8]>) -> Result<Blob> {
    let value = value.filter(|value| !value.is_empty()).ok_or_else(|| {
        Error::request(
            Kind::Unsupported,
            format!(
                "{:?}: its token gives {}, so a copy could not be told to be the same key",
                object.id,
                match object.id.class {
                    Class::SECRET_KEY => "no check value (CKA_CHECK_VALUE)",
                    _ => "no public half: import its certificate with the same CKA_ID",
                }
            ),
        )
    })?;
    Ok(Blob(value.to_vec().into()))
}

/// From the source to one target.
struct CloneTarget<'r, 'a> {
    run: &'r CloneRun<'a>,
    target: &'r PresentMember,
    /// Opened for the first key.
    channel: Option<Channel<'a>>,
    opener: Opener<'r>,
}

impl<'a> CloneTarget<'_, 'a> {
    /// Copies one object, and proves it.
    fn carry(&mut self, object: &Object) -> Result<()> {
        let coordinator = self.run.coordinator;
        let _turn = coordinator.turn.share();
        let name = Name(object.id);
        if coordinator.is_tombstoned(&name.0) && !self.run.buried.contains(&name) {
            return Err(Error::request(
                Kind::UnknownObject,
                format!("{:?} was deleted meanwhile", object.id),
            ));
        }
        let run = self.run;
        let effect = run
            .work(object, self)?
            .apply(&mut self.opener, &[], false)?;
        let access = self.opener.access();
        let copy = effect.made.first().unwrap_or(object);
        prove::copy(access, copy, Some(run.source)).inspect_err(|_| {
            // A copy that is another key must not stay under this one's name.
            let _ = access.destroy(object.id.into());
        })
    }

    fn channel(&mut self) -> Result<&Channel<'a>> {
        if self.channel.is_none() {
            let access = self.opener.access();
            let channel = if let Some(key) = self.run.wrapping {
                Channel::under(self.run.source, access, key)?
            } else {
                let transport = &self.run.coordinator.transport;
                let pin = transport.enrol(access, &self.target.serial)?;
                Channel::to(self.run.source, &pin)?
            };
            self.channel = Some(channel);
        }
        self.channel
            .as_ref()
            .ok_or_else(|| Error::pool(Kind::Invalid, "no channel"))
    }
}

fn present(member: &PoolMember) -> Result<PresentMember> {
    PresentMember::of(member).ok_or_else(|| {
        Error::token(
            Kind::Lost,
            format!("{} is not in service; hsmux status says why", member.name),
        )
    })
}

/// The chosen objects, in the order in which they are copied: what is public first, because by it
/// the target names the keys.
fn selected<'a>(all: &'a [Object], selection: &Selection) -> Result<Vec<&'a Object>> {
    let mut chosen: Vec<&Object> = all.iter().filter(|o| !is_ours(o)).collect();
    if let Some(wanted) = &selection.objects {
        for id in wanted {
            if !chosen.iter().any(|object| object.id == *id) {
                return Err(Error::new(
                    Scope::Request,
                    Kind::UnknownObject,
                    format!("the source has no {id:?}"),
                ));
            }
        }
        chosen.retain(|object| wanted.iter().any(|id| belongs(object, *id)));
    }
    chosen.sort_by_key(|object| match object.id.class {
        Class::PUBLIC_KEY => 0,
        Class::CERTIFICATE => 1,
        Class::PRIVATE_KEY => 2,
        Class::SECRET_KEY => 3,
        _ => 4,
    });
    Ok(chosen)
}

/// Transport keys stay where they are.
fn is_ours(object: &Object) -> bool {
    let label = object.attributes.text(CKA_LABEL).unwrap_or_default();
    label.starts_with(super::TRANSPORT_LABEL)
}

/// Tells whether an object is the wanted one, its other half, or its certificate.
fn belongs(object: &Object, wanted: ObjectId) -> bool {
    let is_pair = matches!(wanted.class, Class::PRIVATE_KEY | Class::PUBLIC_KEY);
    match object.id.class {
        _ if object.id == wanted => true,
        Class::PUBLIC_KEY => is_pair && object.id.name == wanted.name,
        Class::CERTIFICATE if is_pair => PublicKey::from_attributes(&object.attributes)
            .is_ok_and(|key| ObjectId::of_public_key(wanted.class, key.spki()) == wanted),
        _ => false,
    }
}
