//! Members of the configuration as seats of the pool.

use std::path::{Path, PathBuf};

use hsmux_config::{Config, Member};
use hsmux_pool::Pool;
use hsmux_token::{Error, Kind, Result};
use hsmux_worker::{seats_of, seats_to_add};

/// The executable that is started as worker: the configuration's, else this one.
pub fn worker(config: &Config) -> Result<PathBuf> {
    if let Some(worker) = config.worker_program()? {
        return Ok(worker);
    }
    std::env::current_exe().map_err(|e| {
        Error::pool(
            Kind::Environment,
            format!("where is this executable? {e}; set [daemon] worker"),
        )
    })
}

/// Takes over the members of another configuration; answers what has changed. A member that an administrator has removed
/// and that is still in the file is added again.
pub fn change(pool: &Pool, old: &Config, new: &Config, worker: &Path) -> Vec<String> {
    let identity = |config: &Config| config.node.as_ref().map(|node| node.identity.clone());
    let another = identity(old) != identity(new);
    let is_another = |member: &Member| differs(old, member) || (another && member.node.is_some());
    let mut lines = Vec::new();
    let mut changed = Vec::new();
    for member in &old.tokens {
        let kept = new.member(&member.name);
        if kept.is_some_and(|member| !is_another(member)) {
            continue;
        }
        match pool.remove(&member.name) {
            Ok(()) if kept.is_some() => changed.push(&member.name),
            Ok(()) => {
                lines.push(format!("{} removed", member.name));
                pool.forget_parked(&member.name);
            }
            // It was removed before, by an administrator.
            Err(error) => tracing::debug!(member = member.name, %error, "not removed"),
        }
    }
    let present = pool.traffic().seats;
    for member in &new.tokens {
        let name = &member.name;
        let mut seats = seats_of(new, member, worker);
        seats.retain(|seat| present.iter().all(|other| *other.name != *seat.name));
        if seats.is_empty() {
            continue;
        }
        let is_changed = changed.contains(&name);
        lines.push(format!(
            "{name} {}",
            if is_changed { "changed" } else { "added" }
        ));
        for seat in seats {
            if let Err(error) = pool.add(seat) {
                lines.push(format!("{name}: {error}"));
            }
        }
    }
    lines
}

/// Adds one member, with all its seats or not at all.
pub fn add(pool: &Pool, config: &Config, member: &Member) -> Result<()> {
    let worker: &Path = &worker(config)?;
    pool.add_all(seats_to_add(config, member, worker))
}

/// The error of a member that did not come into service. It is not a member any more.
pub fn not_added(error: Error) -> Error {
    let error = match error.kind() {
        // The error says what to do about the PIN.
        Kind::PinHeld => {
            let message = format!("{error}; then `hsmux token add` again");
            Error::new(error.scope(), error.kind(), message)
        }
        _ => error,
    };
    error.at("it was not added")
}

/// True if a member is new or changed. Its position in the file does not matter.
fn differs(old: &Config, member: &Member) -> bool {
    let line = member.line;
    old.member(&member.name).is_none_or(|before| {
        Member {
            line,
            ..before.clone()
        } != *member
    })
}
