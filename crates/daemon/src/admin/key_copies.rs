//! Copies of keys on other members.

use hsmux_replicate::{CloneOutcome, ClonedObject, Selection};
use hsmux_token::{Class, Error, Kind, Result, Uri};

use super::{AdminFailure, find};
use crate::daemon::Running;

/// Copies keys to members that do not hold them, under a secret key that source and target hold, or
/// under transport keys.
pub fn clone(
    running: &Running,
    which: Option<&Uri>,
    from: Option<&str>,
    to: &[String],
    wrapping: Option<&Uri>,
) -> Result<Vec<String>, AdminFailure> {
    let catalogue = running.shared.pool.catalogue();
    let objects = which
        .map(|uri| find::entries(&catalogue, uri))
        .transpose()?;
    let wrapping = wrapping
        .map(|uri| find::one(&catalogue, uri, Class::SECRET_KEY))
        .transpose()?;
    let holder = || {
        let held = objects.as_ref()?.first()?;
        held.members().first().map(ToString::to_string)
    };
    let source = from.map(str::to_owned).or_else(holder).ok_or_else(|| {
        let message = "no member that serves the key; name one with --from";
        Error::request(Kind::NoReplica, message)
    })?;
    let selection = Selection {
        objects: objects.map(|entries| entries.iter().map(|entry| entry.object.id).collect()),
        extractable: false,
    };
    let cloned = running.shared.writer.clone_keys(
        &source,
        to,
        &selection,
        wrapping.map(|key| key.id),
        &log,
    )?;
    outcomes(cloned)
}

fn log(cloned: &ClonedObject) {
    let (member, label) = (&cloned.target, &cloned.label);
    match &cloned.outcome {
        CloneOutcome::Copied => tracing::info!(member, label, "{:?} is copied", cloned.object),
        CloneOutcome::There => tracing::info!(member, label, "{:?} is there", cloned.object),
        CloneOutcome::Failed(error) => {
            tracing::warn!(member, label, %error, "{:?} is not copied", cloned.object);
        }
    }
}

fn outcomes(cloned: Vec<ClonedObject>) -> Result<Vec<String>, AdminFailure> {
    let mut lines = Vec::new();
    let mut failed: Option<AdminFailure> = None;
    for ClonedObject {
        target,
        object,
        label,
        outcome,
    } in cloned
    {
        let what = format!("{} {label:?} to {target}", object.class.name());
        match outcome {
            CloneOutcome::Copied => lines.push(format!("{what}: copied")),
            CloneOutcome::There => lines.push(format!("{what}: there already, proved")),
            CloneOutcome::Failed(error) => {
                let failure = failed.get_or_insert_with(|| AdminFailure::from(error.clone()));
                failure.details.insert(what, error.to_string());
            }
        }
    }
    match failed {
        None => Ok(lines),
        Some(mut failure) => {
            failure.message = "not every copy was made".into();
            failure
                .details
                .extend(lines.into_iter().map(|line| (line, "done".to_owned())));
            Err(failure)
        }
    }
}
