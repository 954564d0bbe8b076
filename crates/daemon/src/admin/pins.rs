//! PINs of members: what is on record, and new ones.

use std::path::PathBuf;

use hsmux_config::{Config, Login, Member};
use hsmux_module::pin;
use hsmux_replicate::pin_rotate::{self, PinChanger, PinHolder, RotationResult};
use hsmux_token::{Error, Kind, Result, Secret, Uri, UriError};

use super::{AdminFailure, AdminRequest, PinRow, pin_change_process, recorder};
use crate::daemon::Running;
use crate::members::worker;
use crate::settings::pin_source;

/// What a URI begins with that means tokens which are no members: cards, say.
const SCHEME: &str = "pkcs11:";

/// As long as the token takes, but no longer than this.
const LONGEST: u64 = 16;

/// What is on record in the state folder; needs no daemon.
pub fn list(config: &Config) -> Result<Vec<PinRow>> {
    let records = pin::list(&config.state)?;
    Ok(records.iter().filter_map(PinRow::of).collect())
}

/// [`release`] where no daemon runs: the trail gets its line all the same.
pub fn release_offline(config: &Config, token: &str) -> Result<Vec<PinRow>> {
    let request = AdminRequest::PinRelease {
        token: token.to_owned(),
    };
    recorder::without_daemon(config, &request, || release(config, token))
}

/// Lets a held PIN of a member, or of the tokens that a URI means, be tried once more; a daemon is then told
/// to connect the member.
pub fn release(config: &Config, token: &str) -> Result<Vec<PinRow>> {
    let uri = match config.member(token) {
        None if token.starts_with(SCHEME) => uri(token)?,
        _ => named(config, token)?.uri.clone(),
    };
    let released = pin::release(&config.state, &uri)?;
    if released.is_empty() {
        let message = format!("{token}: no PIN of it is held; hsmux pin list shows all");
        return Err(Error::request(Kind::Invalid, message));
    }
    Ok(released.iter().filter_map(PinRow::of).collect())
}

/// Gives members new random PINs, one after the other. The workers stay logged in meanwhile.
pub fn rotate(running: &Running, tokens: &[String]) -> Result<Vec<String>, AdminFailure> {
    let config = running.config();
    let (members, left) =
        pin_rotate::remaining(meant(&config, tokens)?, |member| member.pin.as_ref());
    let holders = members.iter().map(|member| holder(running, member));
    let holders = holders.collect::<Result<Vec<_>>>()?;
    let changer = ModulePinChanger {
        config: &config,
        program: worker(&config)?,
    };
    let told =
        |rotated: &RotationResult| tracing::info!(file = %rotated.file.display(), "a new PIN");
    let rotated = pin_rotate::rotate(&holders, &changer, &told)?;
    for member in rotated.iter().filter(|r| r.result.is_ok()) {
        for name in &member.members {
            // Those that serve are left as they are.
            let _ = running.shared.pool.resume(name);
        }
    }
    // Whatever became of the others: what is in a file by now is what applications have to say.
    running.refresh_pins()?;
    let told = pool_pins(&config, &members);
    answer(rotated).map(|mut lines| {
        lines.extend(told);
        lines.extend(not_again(&left));
        lines
    })
}

/// The members that are asked for, all without names. A PIN that several share changes on all of them.
fn meant<'a>(config: &'a Config, names: &[String]) -> Result<Vec<&'a Member>> {
    let asked = names.iter().map(|name| named(config, name));
    let asked = asked.collect::<Result<Vec<_>>>()?;
    let is_meant = |member: &Member, one: &Member| {
        let pins = one.pin.as_ref().zip(member.pin.as_ref());
        one.name == member.name || pins.is_some_and(|(one, pin)| pin_rotate::are_shared(one, pin))
    };
    let all = config.tokens.iter().filter(|member| match &*asked {
        [] => member.node.is_none(),
        some => some.iter().any(|one| is_meant(member, one)),
    });
    Ok(all.collect())
}

/// The hint about members that the end of an earlier rotation has not changed.
fn not_again(left: &[&Member]) -> Option<String> {
    let names: Vec<_> = left.iter().map(|member| member.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: left as they are, for this was the rest of an earlier rotation; to give them new PINs, too, repeat it",
            names.join(", ")
        )
    })
}

/// What to tell those whose applications log in with a member's PIN.
fn pool_pins(config: &Config, rotated: &[&Member]) -> Vec<String> {
    let with_pin = config.listeners.iter().filter(|l| l.login == Login::Pin);
    let lines = with_pin.filter_map(|listener| {
        let source = pin_source(config, listener)?;
        let member = rotated.iter().find(|m| m.pin.as_ref() == Some(source))?;
        Some(format!(
            "{}: applications log in with the PIN of {}, which is the new one from now on; \
             {} pin gives them one of their own",
            listener.socket.path.display(),
            member.name,
            config.section_of(listener),
        ))
    });
    lines.collect()
}

fn answer(rotated: Vec<RotationResult>) -> Result<Vec<String>, AdminFailure> {
    let mut lines = Vec::new();
    let mut failed: Option<AdminFailure> = None;
    for RotationResult {
        file,
        members,
        result,
    } in rotated
    {
        let members = members.join(", ");
        match result {
            Ok(()) => lines.push(format!("{members}: new PIN in {}", file.display())),
            Err(error) => {
                let failure = failed.get_or_insert_with(|| AdminFailure::from(error.clone()));
                failure.details.insert(members, error.to_string());
            }
        }
    }
    match failed {
        None => Ok(lines),
        Some(mut failure) => {
            failure.message = "not every PIN was changed; repeat the rotation to go on".into();
            failure
                .details
                .extend(lines.into_iter().map(|line| (line, "done".to_owned())));
            Err(failure)
        }
    }
}

fn uri(text: &str) -> Result<Uri> {
    text.parse()
        .map_err(|error: UriError| Error::request(Kind::Invalid, error.to_string()))
}

fn named<'a>(config: &'a Config, name: &str) -> Result<&'a Member> {
    config.member(name).ok_or_else(|| {
        let file = config.file.display();
        Error::request(
            Kind::Invalid,
            format!("{file} has no member {name}; hsmux token list shows all"),
        )
    })
}

/// A member with the length of its new PIN, which its token says.
fn holder(running: &Running, member: &Member) -> Result<PinHolder> {
    let source = member.pin.clone().ok_or_else(|| {
        let message = format!("{} has no pin in the configuration", member.name);
        Error::request(Kind::Invalid, message)
    })?;
    let length = match running.shared.pool.member(&member.name) {
        Ok(token) => {
            let (min, max) = token.info().pin_length;
            LONGEST.min(max.max(min).max(4)).max(min) as usize
        }
        // An earlier run was broken off and the token may have its new PIN, which keeps it out of
        // service: that PIN is there already.
        Err(_) if pin_rotate::begun(&source) => 0,
        Err(error) => return Err(error),
    };
    Ok(PinHolder {
        member: member.name.clone(),
        source,
        length,
    })
}

/// Changes PINs through the modules of the tokens.
struct ModulePinChanger<'a> {
    config: &'a Config,
    program: PathBuf,
}

impl PinChanger for ModulePinChanger<'_> {
    fn change_pin(&self, member: &str, old: &Secret, new: &Secret) -> Result<()> {
        let member = named(self.config, member)?;
        let mut options = hsmux_worker::open_options(member, &self.config.state)?;
        options.pin = Some(old.clone());
        let environment = hsmux_worker::environment(self.config, member);
        let sandbox = hsmux_worker::Sandbox::of(member);
        pin_change_process::change_pin(&self.program, &environment, options, sandbox, new)
    }
}
