//! A secret key proves itself against a copy that serves already.
//!
//! The first member in the order of the configuration that holds the key is believed: the administrator names it by
//! that order, or by `trusted`. Everybody else has to do with the key what a believed copy does, on random data. Where
//! none serves, it has to answer what the key has answered when it was compared last ([`super::answers`]); a copy of
//! which nothing is known does not serve before a member has come that may hold the believed one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Object, Operation, Result, Verb, ck};

use super::answers::Answer;
use super::pair::Pair;
use super::{Finding, not_this_way, random};
use crate::catalogue::{Catalogue, ReplicaState};
use crate::core::Core;
use crate::record::Connection;

/// How long a seat waits for those before it in the configuration, which may hold the trusted copy.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn prove(
    core: &Arc<Core>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Result<Finding> {
    match trusted_copy(core, candidate, object) {
        // That it was another worker which came first is known only after waiting for it.
        Some(trusted) if trusted.shares_token_with(candidate) => Ok(Finding::Proved),
        Some(trusted) => {
            let pair = Pair {
                core,
                trusted: &trusted,
                candidate,
                object,
            };
            let (finding, answer) = pair.compare()?;
            if let Some(answer) = answer {
                core.answers.learn(&object.id, answer);
            }
            Ok(finding)
        }
        None => prove_alone(core, candidate, object),
    }
}

/// No other copy serves.
fn prove_alone(core: &Arc<Core>, candidate: &Arc<Connection>, object: &Object) -> Result<Finding> {
    let own = &candidate.record;
    let Some(before) = holder_before(core, candidate, object) else {
        if own.index > 0 && !core.answers.has(&object.id) {
            learn_from(core, candidate, object)?;
        }
        return Ok(Finding::Proved);
    };
    if own.seat.connector.trusted() {
        return Ok(Finding::Proved);
    }
    if let Some(answer) = core.answers.of(&object.id) {
        match core.on(candidate, answer.question()) {
            Ok(outcome) => {
                if outcome.into_bytes()? == answer.expected() {
                    return Ok(Finding::Proved);
                }
                let reason = "it is another key than the one that other members had; delete the wrong one, \
                              then hsmux key clone";
                return Ok(Finding::Not(reason.into()));
            }
            Err(error) if !not_this_way(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Finding::NotYet(format!(
        "{before} comes first in the configuration, may hold the key and is not there to compare it with; bring \
         {before} back, or say trusted = true in the [[token]] of {}, then hsmux reload",
        own.member
    )))
}

/// Has the key answer a question, which it is asked again where no other copy serves.
fn learn_from(core: &Arc<Core>, candidate: &Arc<Connection>, object: &Object) -> Result<()> {
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
                    let answer = Answer::new(question, outcome.into_bytes()?.to_vec());
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
fn holder_before(core: &Core, candidate: &Connection, object: &Object) -> Option<Arc<str>> {
    let catalogue = core.catalogue.load();
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
    trusted: &Arc<Connection>,
    candidate: &Arc<Connection>,
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

/// Work that both can do with the key, on random data. ECB comes first: a worker goes on with one operation of CBC
/// (`module/src/stream.rs`), which does not cost what others cost.
pub(super) fn samples(
    core: &Arc<Core>,
    trusted: &Arc<Connection>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Result<Vec<Operation>> {
    let pair = Pair {
        core,
        trusted,
        candidate,
        object,
    };
    let allowed = |usage| object.attributes.flag(usage) != Some(false);
    let mut samples = Vec::new();
    let mut ciphers = pair.ciphers()?;
    ciphers.reverse();
    let encrypts = ciphers.iter().cloned().chain(pair.gcm()?).collect();
    let verbs = [
        (Verb::Encrypt, allowed(ck::CKA_ENCRYPT), encrypts),
        (Verb::Decrypt, allowed(ck::CKA_DECRYPT), ciphers),
        (Verb::Sign, allowed(ck::CKA_SIGN), pair.macs()),
    ];
    for (verb, _, mechanisms) in verbs.into_iter().filter(|(_, allowed, _)| *allowed) {
        for mechanism in mechanisms {
            samples.push(Operation::Use {
                verb,
                key: object.id.into(),
                mechanism,
                data: random::<32>()?.to_vec().into(),
            });
        }
    }
    Ok(samples)
}

/// The connection whose copy is trusted; `None` if it is the candidate's own.
fn trusted_copy(
    core: &Arc<Core>,
    candidate: &Arc<Connection>,
    object: &Object,
) -> Option<Arc<Connection>> {
    let until = Instant::now() + GRACE;
    let mut moved = core.moved.0.lock();
    loop {
        let catalogue = core.catalogue.load();
        if let Some(trusted) = serving_copy(core, &catalogue, candidate, object) {
            return Some(trusted);
        }
        let first = !someone_before(&catalogue, candidate, object);
        if first || !core.options.threads || !candidate.is_current() {
            return None;
        }
        if core.moved.1.wait_until(&mut moved, until) {
            return None;
        }
    }
}

/// A serving copy, on another member rather than on another worker of the same.
fn serving_copy(
    core: &Core,
    catalogue: &Catalogue,
    candidate: &Connection,
    object: &Object,
) -> Option<Arc<Connection>> {
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

/// Whether a seat before this one may turn out to hold the key.
fn someone_before(catalogue: &Catalogue, candidate: &Connection, object: &Object) -> bool {
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
