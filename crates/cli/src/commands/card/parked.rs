//! One card, one user at a time: the daemon's member rests while a command works on its card.

use hsmux_daemon::StateLock;
use hsmux_daemon::admin::{AdminClient, DaemonStatus, Request, Response};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::context::Context;

/// Members that were parked by this command, and are put back into service at its end.
pub struct Parked {
    admin: Option<AdminClient>,
    members: Vec<String>,
    interrupts: Option<Handle>,
}

impl Parked {
    /// Parks the members that use the cards with these serial numbers. Without a daemon there are none;
    /// one that cannot be asked is an error, for it may be using the cards.
    pub fn park(context: &Context, serials: &[String]) -> anyhow::Result<Self> {
        let mut parked = Self {
            admin: daemon(context)?,
            members: Vec::new(),
            interrupts: None,
        };
        let Some(admin) = &parked.admin else {
            return Ok(parked);
        };
        let users = users(&status(admin)?, serials);
        // Ctrl+C leaves nobody parked.
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        parked.interrupts = Some(signals.handle());
        let (file, all) = (context.file(), users.clone());
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Their cards are free when this process has ended: another one puts them back.
                for member in &all {
                    let resume = std::process::Command::new("/proc/self/exe")
                        .arg("--config")
                        .arg(&file)
                        .args(["token", "resume", member])
                        .spawn();
                    if resume.is_err() {
                        eprintln!("hsmux: put it back into service: hsmux token resume {member}");
                    }
                }
                std::process::exit(128 + signal);
            }
        });
        for member in users {
            let request = Request::TokenPark {
                token: member.clone(),
                reason: "hsmux card works on its card".into(),
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
        if let Some(interrupts) = self.interrupts.take() {
            interrupts.close();
        }
        let Some(admin) = &self.admin else {
            return Vec::new();
        };
        let resume = |token| admin.ask(&Request::TokenResume { token });
        let answers = self.members.drain(..).map(resume);
        answers
            .filter_map(Result::err)
            .map(|error| error.to_string())
            .collect()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for failure in self.put_back() {
            eprintln!("hsmux: {failure}");
        }
    }
}

/// Serial numbers of the cards that the daemon's members use.
pub fn in_use(context: &Context) -> anyhow::Result<Vec<String>> {
    let Some(admin) = daemon(context)? else {
        return Ok(Vec::new());
    };
    let tokens = status(&admin)?
        .members
        .into_iter()
        .filter_map(|member| member.token);
    Ok(tokens.map(|token| token.serial).collect())
}

/// The running daemon.
fn daemon(context: &Context) -> anyhow::Result<Option<AdminClient>> {
    if !context.file().exists() || !StateLock::is_held(&context.load()?.state) {
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

/// Members that use these cards and are not parked by somebody else.
fn users(status: &DaemonStatus, serials: &[String]) -> Vec<String> {
    let members = status.members.iter().filter(|member| {
        let token = member.token.as_ref();
        token.is_some_and(|token| serials.contains(&token.serial)) && member.state != "parked"
    });
    members.map(|member| member.name.clone()).collect()
}
