//! One card, one user at a time: the daemon's member rests while a command works on its card.

use std::path::Path;

use hsmux_config::Config;
use hsmux_daemon::admin::{AdminClient, DaemonStatus, MemberStatus, Request, Response};

use crate::context::Context;
use crate::rest::Rest;

/// A member that uses one of the cards, or may be about to.
#[derive(Clone)]
struct User {
    name: String,
    /// It did before, so that it is to do so again.
    serves: bool,
}

/// Members that were parked by this command, and are put back into service at its end.
pub struct Parked {
    admin: Option<AdminClient>,
    members: Vec<User>,
    rest: Option<Rest>,
}

impl Parked {
    /// Parks the members that use the cards with these serial numbers. Without a daemon there are none;
    /// one that cannot be asked is an error, for it may be using the cards.
    pub fn park(context: &Context, serials: &[String]) -> anyhow::Result<Self> {
        let mut parked = Self {
            admin: daemon(context)?,
            members: Vec::new(),
            rest: None,
        };
        let Some(admin) = &parked.admin else {
            return Ok(parked);
        };
        let users = users(&status(admin)?, &context.draft()?.config, serials);
        if users.is_empty() {
            return Ok(parked);
        }
        let names: Vec<_> = users.iter().map(|user| user.name.clone()).collect();
        parked.rest = Some(Rest::of(Path::new("/proc/self/exe"), context, &names)?);
        for member in users {
            let request = Request::TokenPark {
                token: member.name.clone(),
                reason: "hsmux card works on its card".into(),
                force: true,
            };
            admin.ask(&request)?;
            parked.members.push(member);
        }
        Ok(parked)
    }

    /// Puts the members back into service: their keys prove themselves anew.
    ///
    /// `outcome` is that of the work, and comes first; a member that does not come back is an error of its own.
    pub fn resume<T>(mut self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let failures = self.put_back();
        match outcome {
            Ok(_) if !failures.is_empty() => {
                anyhow::bail!(
                    "the card is done, but not back in the pool:\n{}",
                    failures.join("\n")
                )
            }
            Err(error) if !failures.is_empty() => Err(error.context(failures.join("\n"))),
            outcome => outcome,
        }
    }

    fn put_back(&mut self) -> Vec<String> {
        let Some(admin) = &self.admin else {
            return Vec::new();
        };
        let resume = |member: User| {
            let answer = admin.ask(&Request::TokenResume { token: member.name });
            answer.err().filter(|_| member.serves)
        };
        let failures = self.members.drain(..).filter_map(resume);
        let failures = failures.map(|error| error.to_string()).collect();
        self.rest = None;
        failures
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for failure in self.put_back() {
            eprintln!("hsmux: {failure}");
        }
    }
}

/// Serial numbers of the cards that members of the daemon are logged in to.
pub fn in_use(context: &Context) -> anyhow::Result<Vec<String>> {
    let Some(admin) = daemon(context)? else {
        return Ok(Vec::new());
    };
    let tokens = status(&admin)?
        .members
        .into_iter()
        .filter(|member| member.in_service > 0)
        .filter_map(|member| member.token);
    Ok(tokens.map(|token| token.serial).collect())
}

/// The running daemon.
fn daemon(context: &Context) -> anyhow::Result<Option<AdminClient>> {
    if !context.file().exists() || !context.is_served()? {
        return Ok(None);
    }
    context.admin().map(Some)
}

fn status(admin: &AdminClient) -> anyhow::Result<DaemonStatus> {
    match admin.ask(&Request::Status)? {
        Response::Status(status) => Ok(*status),
        _ => anyhow::bail!("the daemon answered something else"),
    }
}

/// Members that use these cards and are not parked by somebody else. One that has not found its token yet may
/// be about to, unless the configuration says that its token is another.
fn users(status: &DaemonStatus, config: &Config, serials: &[String]) -> Vec<User> {
    let may_use = |member: &&MemberStatus| {
        let seen = member.token.as_ref().map(|token| &token.serial);
        let named = || config.member(&member.name)?.uri.serial.as_ref();
        let serial = seen.or_else(named);
        serial.is_none_or(|serial| serials.contains(serial)) && member.state != "parked"
    };
    let users = status.members.iter().filter(may_use);
    let user = |member: &MemberStatus| User {
        name: member.name.clone(),
        serves: member.in_service > 0,
    };
    users.map(user).collect()
}
