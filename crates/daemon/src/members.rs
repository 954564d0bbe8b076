//! Members of the configuration as seats of the pool.

use std::path::{Path, PathBuf};

use hsmux_config::{Config, Member};
use hsmux_pool::{Pool, Seat};
use hsmux_token::{Error, Kind, Result};
use hsmux_worker::seats_of;

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

/// The seats of the members that are new or others than before.
pub fn changed_seats(old: &Config, new: &Config) -> Result<Vec<(String, Vec<Seat>)>> {
    let worker = worker(new)?;
    let identity = |config: &Config| config.node.as_ref().map(|node| node.identity.clone());
    let another = identity(old) != identity(new);
    let changed = new
        .tokens
        .iter()
        .filter(|member| differs(old, member) || (another && member.node.is_some()));
    Ok(changed
        .map(|member| (member.name.clone(), seats_of(new, member, &worker, None)))
        .collect())
}

/// Takes over the members of another configuration; answers what has changed.
pub fn change(
    pool: &Pool,
    old: &Config,
    new: &Config,
    seats: Vec<(String, Vec<Seat>)>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for member in &old.tokens {
        let kept = new.member(&member.name).is_some();
        if kept && !seats.iter().any(|(name, _)| *name == member.name) {
            continue;
        }
        let word = if kept { "changed" } else { "removed" };
        match pool.remove(&member.name) {
            Ok(()) => {
                lines.push(format!("{} {word}", member.name));
                if !kept {
                    pool.forget_parked(&member.name);
                }
            }
            // It was removed before, by an administrator.
            Err(error) => tracing::debug!(member = member.name, %error, "not removed"),
        }
    }
    for (name, seats) in seats {
        if old.member(&name).is_none() {
            lines.push(format!("{name} added"));
        }
        for seat in seats {
            if let Err(error) = pool.add(seat) {
                lines.push(format!("{name}: {error}"));
            }
        }
    }
    lines
}
/// The error of a member that did not come into service. It is no member by now, so `token resume` and `pin release` do
/// not know its name.
pub fn not_added(member: &Member, error: &Error) -> Error {
    let Member { name, uri, .. } = member;
    let add = "`hsmux token add` again";
    let message = error
        .to_string()
        .replace(&format!("`hsmux token resume {name}`"), add)
        .replace(
            &format!("`hsmux pin release {name}`"),
            &format!("`hsmux pin release '{uri}'` and {add}"),
        );
    Error::new(error.scope(), error.kind(), message).at("it was not added")
}


/// Adds one member, with all its seats or not at all.
pub fn add(pool: &Pool, config: &Config, member: &Member) -> Result<()> {
    let worker: &Path = &worker(config)?;
    pool.add_all(seats_of(config, member, worker, None))
}

/// Whether a member is new or another one; where it stands in the file is of no matter.
fn differs(old: &Config, member: &Member) -> bool {
    let line = member.line;
    old.member(&member.name).is_none_or(|before| {
        Member {
            line,
            ..before.clone()
        } != *member
    })
}
