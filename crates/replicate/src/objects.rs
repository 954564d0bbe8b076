//! Changes without a new key: certificates, data and public keys come, objects change and go.

use super::member_task::MemberTask;
use super::members::PresentMember;
use super::plan::{ChangePlan, Duty, Roster};
use super::template;
use hsmux_token::ck::{CKA_ID, CKA_LABEL, CKR_ACTION_PROHIBITED, CKR_ATTRIBUTE_VALUE_INVALID};
use hsmux_token::{Attributes, Class, Error, Kind, Object, ObjectId, ObjectRef, Operation, Result};

/// Plans an operation that makes no key.
pub(super) fn plan(
    roster: &Roster,
    operation: &Operation,
    _source: Option<&PresentMember>,
) -> Result<ChangePlan> {
    match operation {
        Operation::Create { template, .. } => create(roster, template),
        Operation::Destroy {
            object: ObjectRef::Token(id),
        } => destroy(roster, *id),
        Operation::SetAttributes {
            object: ObjectRef::Token(id),
            template,
        } => set(roster, *id, template),
        Operation::Copy {
            object: ObjectRef::Token(id),
            template,
        } => copy(roster, *id, template),
        other => Err(Error::request(
            Kind::Unsupported,
            format!("{} does not change the pool's objects", other.call()),
        )),
    }
}

/// A public object on every member.
pub(super) fn create(roster: &Roster, template: &Attributes) -> Result<ChangePlan> {
    let makes = name(template)?;
    let work = MemberTask::Create {
        makes,
        template: template.clone().with_flag(hsmux_token::ck::CKA_TOKEN, true),
    };
    let mut plan = ChangePlan {
        makes: vec![makes],
        need: roster.need,
        ..ChangePlan::default()
    };
    let here = roster
        .here
        .iter()
        .map(|p| (&p.serial, Some(roster.access(p))));
    for (serial, access) in here.chain(roster.later_serials().map(|serial| (serial, None))) {
        let mut duty = Duty::adding(serial, access, vec![work.clone()])?;
        // Data may be a secret: it is taken from another member, not from the journal.
        if makes.class == Class::DATA {
            duty.later = vec![MemberTask::Fetch { makes }];
        }
        plan.duties.push(duty);
    }
    Ok(plan)
}

/// The name of an object that a template makes.
fn name(template: &Attributes) -> Result<ObjectId> {
    let named = hsmux_software::identify("", vec![template.clone()]);
    let class = template::class(template).unwrap_or(Class(u64::MAX));
    let nameless = hsmux_software::unidentified("", template);
    match named.first() {
        Some(object) if object.id != nameless => Ok(object.id),
        _ => Err(Error::request(
            Kind::Unsupported,
            format!(
                "C_CreateObject: {}: its copies on several members could not be told to be the same",
                class.name()
            ),
        )),
    }
}

/// Gone from every member, and from those that are away when they return. Never taken back.
fn destroy(roster: &Roster, id: ObjectId) -> Result<ChangePlan> {
    holders(roster, id)?;
    let remove = || vec![MemberTask::Remove { objects: vec![id] }];
    let here = roster.here.iter().map(|present| &present.serial);
    Ok(ChangePlan {
        removes: vec![id],
        need: roster.here.len(),
        duties: here
            .chain(roster.later_serials())
            .map(|serial| Duty::new(serial, remove(), vec![]))
            .collect(),
        ..ChangePlan::default()
    })
}

/// New values on every member that holds the object.
fn set(roster: &Roster, id: ObjectId, changes: &Attributes) -> Result<ChangePlan> {
    let mut plan = ChangePlan::default();
    let holders = holders(roster, id)?;
    let first = holders[0].1.attributes.clone();
    for (present, object) in &holders {
        let duty = set_duty(&present.serial, object, changes);
        plan.duties.push(duty);
    }
    plan.need = roster.need_of(plan.duties.len())?;
    for serial in roster.later_serials() {
        let object = Object {
            id,
            attributes: first.clone(),
        };
        plan.duties.push(set_duty(serial, &object, changes));
    }
    let becomes = renamed(&holders[0].0.serial, &holders[0].1, changes);
    if becomes != id {
        plan.makes.push(becomes);
        plan.removes.push(id);
    }
    Ok(plan)
}

/// Fails if a member has an object of this name. Those aside do what they owe of it before.
pub(super) fn is_free(roster: &Roster, becomes: ObjectId) -> Result<()> {
    for present in &roster.here {
        if roster.access(present).find(becomes)?.is_some() {
            return Err(Error::request(
                Kind::Vendor(CKR_ATTRIBUTE_VALUE_INVALID),
                format!(
                    "C_SetAttributeValue: {} has {becomes:?} already, and could not tell two of them apart",
                    present.name
                ),
            ));
        }
    }
    Ok(())
}

fn set_duty(serial: &str, object: &Object, changes: &Attributes) -> Duty {
    let becomes = renamed(serial, object, changes);
    let mut before = Attributes::default();
    for change in &changes.0 {
        let value = object.attributes.get(change.kind);
        // An object without one has an empty one (PKCS#11 3.0, sections 4.4 and 4.7).
        let is_name = matches!(change.kind, CKA_ID | CKA_LABEL);
        if let Some(value) = value.or(is_name.then_some(&[])) {
            before.set(change.kind, value.to_vec());
        }
    }
    let set = MemberTask::Set {
        object: object.id,
        becomes,
        template: changes.clone(),
        is_undo: false,
    };
    let undo = MemberTask::Set {
        object: becomes,
        becomes: object.id,
        template: before,
        is_undo: true,
    };
    Duty::new(serial, vec![set], vec![undo])
}

/// A copy within every member that holds the model.
fn copy(roster: &Roster, id: ObjectId, changes: &Attributes) -> Result<ChangePlan> {
    let holders = holders(roster, id)?;
    let makes = renamed(&holders[0].0.serial, &holders[0].1, changes);
    if makes == id {
        return Err(Error::request(
            Kind::Vendor(CKR_ACTION_PROHIBITED),
            format!(
                "C_CopyObject: a {} is known by its value, so a copy on the same token would be \
                 the same object: change the object's attributes instead",
                id.class.name()
            ),
        ));
    }
    let work = || {
        vec![MemberTask::Copy {
            makes,
            object: id,
            template: changes.clone(),
        }]
    };
    let mut plan = ChangePlan {
        makes: vec![makes],
        need: roster.need_of(holders.len())?,
        ..ChangePlan::default()
    };
    for (present, _) in &holders {
        let access = Some(roster.access(present));
        plan.duties
            .push(Duty::adding(&present.serial, access, work())?);
    }
    for serial in roster.later_serials() {
        plan.duties.push(Duty::adding(serial, None, work())?);
    }
    Ok(plan)
}

/// The members in service that hold an object, and what they say of it.
fn holders(roster: &Roster, id: ObjectId) -> Result<Vec<(&PresentMember, Object)>> {
    let mut holders = Vec::new();
    for present in &roster.here {
        if let Some(object) = roster.access(present).find(id)? {
            holders.push((present, object));
        }
    }
    if holders.is_empty() && !roster.aside.is_empty() {
        return Err(roster.too_few_now(0, 1));
    }
    if holders.is_empty() {
        return Err(Error::request(
            Kind::UnknownObject,
            format!("no member in service has {id:?}"),
        ));
    }
    Ok(holders)
}

/// The name of an object after a change of its attributes.
fn renamed(serial: &str, object: &Object, changes: &Attributes) -> ObjectId {
    let after = template::over(&object.attributes, changes);
    // The name of half a key pair is its public key, whatever its other attributes.
    if matches!(object.id.class, Class::PRIVATE_KEY | Class::PUBLIC_KEY) {
        return object.id;
    }
    let named = hsmux_software::identify(serial, vec![after]);
    named.first().map_or(object.id, |named| named.id)
}
