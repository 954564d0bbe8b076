//! A secret key proves itself against a copy that serves already.
//!
//! On random data, every copy has to give the same results as a copy that serves. If none serves, the copy has to
//! answer as the key did when it was compared last ([`super::answers`]). This holds for the first member as well. A key
//! that was never compared is trusted by the order of the configuration, or by `trusted = true` ([`super::trust`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Object, Result, Verb, ck};

use super::answers::ProofAnswer;
use super::pair::Pair;
use super::trust::{Evidence, Recorded, TrustStep};
use super::{Finding, not_this_way, random};
use crate::catalogue::{Catalogue, ReplicaState};
use crate::clock;
use crate::core::Core;
use crate::record::SeatConnection;

/// How long a seat waits for those before it in the configuration, which may hold the trusted copy.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn prove(
    core: &Arc<Core>,
    candidate: &Arc<SeatConnection>,
    object: &Object,
) -> Result<Finding> {
    let until = clock::now() + GRACE;
    let mut record = if core.answers.has(&object.id) {
        Recorded::NotAsked
    } else {
        Recorded::Nothing
    };
    let member = &candidate.record.member;
    loop {
        match next_step(core, candidate, object, record, until) {
            // Another worker of the same token came first, and was waited for.
            TrustStep::Compare(copy) if copy.shares_token_with(candidate) => {
                return Ok(Finding::Proved);
            }
            TrustStep::Compare(copy) => return compare(core, &copy, candidate, object),
            TrustStep::Wait => {}
            TrustStep::Ask => record = ask(core, candidate, object)?,
            TrustStep::Serve => return Ok(Finding::Proved),
            TrustStep::ServeAndRecord => {
                core.answers.forget(&[object.id]);
                learn_from(core, candidate, object)?;
                return Ok(Finding::Proved);
            }
            TrustStep::Refuse => {
                return Ok(Finding::Not(format!(
                    "it is another key than the one that was compared before; delete it on this token and run \
                     hsmux key clone, or, if it is the right one, say trusted = true in the [[token]] of {member} \
                     and run hsmux reload"
                )));
            }
            TrustStep::WaitFor(before) => {
                return Ok(Finding::NotYet(format!(
                    "{before} comes first in the configuration, may hold the key and is not there to compare it \
                     with; bring {before} back, or say trusted = true in the [[token]] of {member}, then hsmux reload"
                )));
            }
        }
    }
}

/// The next step that is not to wait for a member.
fn next_step(
    core: &Core,
    candidate: &Arc<SeatConnection>,
    object: &Object,
    record: Recorded,
    until: Instant,
) -> TrustStep<Arc<SeatConnection>> {
    let own = &candidate.record;
    let mut moved = core.moved.lock();
    let mut patient = core.options.threads;
    loop {
        let catalogue = core.catalogue.load();
        let evidence = Evidence {
            serving: serving_copy(core, &catalogue, candidate, object),
            may_come: patient
                && candidate.is_current()
                && someone_before(&catalogue, candidate, object),
            before: holder_before(core, &catalogue, candidate, object),
            first: own.index == 0,
            trusted: own.seat.connector.trusted(),
            record,
        };
        match evidence.next_step() {
            TrustStep::Wait => {
                let is_late;
                (moved, is_late) = core.moved.wait_until(moved, until);
                patient = !is_late;
            }
            step => return step,
        }
    }
}

/// Compares it with a copy that serves.
fn compare(
    core: &Arc<Core>,
    trusted: &Arc<SeatConnection>,
    candidate: &Arc<SeatConnection>,
    object: &Object,
) -> Result<Finding> {
    let pair = Pair {
        core,
        trusted,
        candidate,
        object,
    };
    let (finding, answer) = pair.compare()?;
    if let Some(answer) = answer {
        core.answers.learn(&object.id, answer);
    }
    Ok(finding)
}

/// Asks it what the key has answered when it was compared.
fn ask(core: &Arc<Core>, candidate: &Arc<SeatConnection>, object: &Object) -> Result<Recorded> {
    let Some(answer) = core.answers.of(&object.id) else {
        return Ok(Recorded::Nothing);
    };
    match core.on(candidate, answer.question()) {
        Ok(outcome) => {
            let same = outcome.into_bytes()? == answer.expected();
            Ok(if same {
                Recorded::Same
            } else {
                Recorded::Another
            })
        }
        Err(error) if not_this_way(&error) => Ok(Recorded::CannotAnswer),
        Err(error) => Err(error),
    }
}

/// Records an answer of the key, for proofs while no other copy serves.
fn learn_from(core: &Arc<Core>, candidate: &Arc<SeatConnection>, object: &Object) -> Result<()> {
    let pair = Pair {
        core,
        trusted: candidate,
        candidate,
        object,
    };
    let allowed = |usage| object.attributes.flag(usage) != Some(false);
    let ways = [
        (Verb::Encrypt, allowed(ck::CKA_ENCRYPT), pair.ciphers()?),
        (Verb::Sign, allowed(ck::CKA_SIGN), pair.macs()),
    ];
    let challenge = random::<32>()?;
    for (verb, _, mechanisms) in ways.into_iter().filter(|(_, allowed, _)| *allowed) {
        for mechanism in mechanisms {
            let question = pair.question(verb, &mechanism, &challenge);
            match core.on(candidate, &question) {
                Ok(outcome) => {
                    let answer = ProofAnswer::new(question, outcome.into_bytes()?.to_vec());
                    core.answers.learn(&object.id, answer);
                    return Ok(());
                }
                Err(error) if not_this_way(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// A member before this one that holds the key but does not serve it, or that has not shown what it holds.
fn holder_before(
    core: &Core,
    catalogue: &Catalogue,
    candidate: &SeatConnection,
    object: &Object,
) -> Option<Arc<str>> {
    let own = &candidate.record;
    let replicas = catalogue.entries.get(&object.id);
    let replicas = replicas.map_or(&[][..], |entry| &entry.replicas);
    let records = core.records();
    let before = records
        .iter()
        .filter(|record| record.index < own.index && record.member != own.member);
    for record in before {
        let of_member = |index: usize| {
            let other = records.iter().find(|other| other.index == index);
            other.is_some_and(|other| other.member == record.member)
        };
        let has_shown = catalogue.shown.iter().any(of_member);
        let holds = replicas.iter().any(|replica| {
            replica.member == record.member && !matches!(replica.state, ReplicaState::Unproved(_))
        });
        if holds || !has_shown {
            return Some(Arc::clone(&record.member));
        }
    }
    None
}

/// Compares with the copy of this connection.
pub(super) fn prove_against(
    core: &Arc<Core>,
    trusted: &Arc<SeatConnection>,
    candidate: &Arc<SeatConnection>,
    object: &Object,
) -> Result<Finding> {
    let pair = Pair {
        core,
        trusted,
        candidate,
        object,
    };
    Ok(pair.compare()?.0)
}

/// A serving copy, on another member rather than on another worker of the same.
fn serving_copy(
    core: &Core,
    catalogue: &Catalogue,
    candidate: &SeatConnection,
    object: &Object,
) -> Option<Arc<SeatConnection>> {
    let replicas = &catalogue.entries.get(&object.id)?.replicas;
    let own = &candidate.record;
    let serving = replicas
        .iter()
        .filter(|replica| replica.state == ReplicaState::Serving && replica.index != own.index);
    let mut serving: Vec<_> = serving.collect();
    serving.sort_by_key(|replica| replica.member == own.member);
    serving.into_iter().find_map(|replica| {
        let record = core.record(replica.index)?;
        let life = record.life.lock();
        life.connection.clone()
    })
}

/// True if a seat before this one may hold the key.
fn someone_before(catalogue: &Catalogue, candidate: &SeatConnection, object: &Object) -> bool {
    let index = candidate.record.index;
    let unsettled = catalogue.unsettled.iter().any(|seat| seat < index);
    let Some(entry) = catalogue.entries.get(&object.id) else {
        return unsettled;
    };
    unsettled
        || entry.replicas.iter().any(|replica| {
            replica.index < index
                && catalogue.in_service.contains(replica.index)
                && matches!(replica.state, ReplicaState::Proving | ReplicaState::Away)
        })
}
