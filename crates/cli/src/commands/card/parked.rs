//! One user of a card at a time: a member of the daemon is parked while a command works on its card.

use std::path::Path;

use hsmux_config::Config;
use hsmux_daemon::admin::{AdminClient, AdminRequest, AdminResponse, DaemonStatus, MemberStatus};

use crate::context::Context;
use crate::rest::Rest;

/// A member that uses one of the cards, or may do so soon.
#[derive(Clone)]
struct CardMember {
    name: String,
    /// It was in service before, and has to be resumed.
    serves: bool,
}

/// Members that this command has parked, and resumes at its end.
pub struct ParkedMembers {
    admin: Option<AdminClient>,
    members: Vec<CardMember>,
    rest: Option<Rest>,
}

impl ParkedMembers {
    /// Parks the members that use the cards with these serial numbers. Without a daemon there are none.
    /// If the daemon does not answer it is an error, because it may be using the cards.
    pub fn park(context: &Context, serials: &[String]) -> anyhow::Result<Self> {
        let mut parked = Self {
            admin: daemon(context)?,
            members: Vec::new(),
            rest: None,
        };
        let Some(admin) = &parked.admin else {
            return Ok(parked);
        };
        let members = members_using(&status(admin)?, &context.draft()?.config, serials);
        if members.is_empty() {
            return Ok(parked);
        }
        let names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
        parked.rest = Some(Rest::of(Path::new("/proc/self/exe"), context, &names)?);
        for member in members {
            let request = AdminRequest::TokenPark {
                token: member.name.clone(),
                reason: "hsmux card works on its card".into(),
                force: true,
            };
            admin.ask(&request)?;
            parked.members.push(member);
        }
        Ok(parked)
    }

    /// Resumes the members, which prove their keys again. An error in `outcome` comes first;
    /// a member that cannot be resumed is an error of its own.
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
        let resume = |member: CardMember| {
            let answer = admin.ask(&AdminRequest::TokenResume { token: member.name });
            answer.err().filter(|_| member.serves)
        };
        let failures = self.members.drain(..).filter_map(resume);
        let failures = failures.map(|error| error.to_string()).collect();
        self.rest = None;
        failures
    }
}

impl Drop for ParkedMembers {
    fn drop(&mut self) {
        for failure in self.put_back() {
            eprintln!("hsmux: {failure}");
        }
    }
}

/// Serial numbers of cards with a login of a member.
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

/// Connects to the daemon, if one runs.
fn daemon(context: &Context) -> anyhow::Result<Option<AdminClient>> {
    if !context.file().exists() || !context.is_served()? {
        return Ok(None);
    }
    context.admin().map(Some)
}

fn status(admin: &AdminClient) -> anyhow::Result<DaemonStatus> {
    match admin.ask(&AdminRequest::Status)? {
        AdminResponse::Status(status) => Ok(*status),
        _ => anyhow::bail!("the daemon answered something else"),
    }
}

/// Members that use these cards and were not parked before. A member without a token yet may use one soon,
/// unless its configured token is another.
fn members_using(status: &DaemonStatus, config: &Config, serials: &[String]) -> Vec<CardMember> {
    let may_use = |member: &&MemberStatus| {
        let seen = member.token.as_ref().map(|token| &token.serial);
        let named = || config.member(&member.name)?.uri.serial.as_ref();
        let serial = seen.or_else(named);
        serial.is_none_or(|serial| serials.contains(serial)) && member.state != "parked"
    };
    let members = status.members.iter().filter(may_use);
    let on_card = |member: &MemberStatus| CardMember {
        name: member.name.clone(),
        serves: member.in_service > 0,
    };
    members.map(on_card).collect()
}
