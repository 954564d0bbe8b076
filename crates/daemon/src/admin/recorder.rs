//! What commands do by themselves, without the daemon: it is on the trail all the same.

use std::result::Result as Outcome;

use hsmux_audit::Trail;
use hsmux_pool::config::Config;
use hsmux_token::Result;

use super::{AdminClient, Deed, Failure, Request, Stage};
use crate::audit::{self, Who};
use crate::lock;

/// Who writes a command's lines: the daemon, or this process where none runs. It is found before the act, so
/// that nothing is done that cannot be recorded.
pub struct Recorder(By);

enum By {
    Daemon(AdminClient),
    Own(Trail, Who),
}

impl Recorder {
    /// The daemon, which has the trail.
    pub fn daemon(admin: AdminClient) -> Self {
        Self(By::Daemon(admin))
    }

    /// This process, for no daemon runs; there may never have been one.
    pub fn own(config: &Config) -> Result<Self> {
        lock::make_folder(&config.state)?;
        let trail = Trail::open(&audit::settings(config))?;
        let user = rustix::process::getuid().as_raw();
        let who = Who::here(user, "hsmux, without a daemon");
        Ok(Self(By::Own(trail, who)))
    }

    /// Records what was done; on disk when this returns.
    pub fn done(&self, request: &Request) -> Outcome<(), Failure> {
        match &self.0 {
            By::Daemon(admin) => admin.ask(request).map(drop),
            By::Own(..) => Ok(self.ended(request, &Ok(()))?),
        }
    }

    /// Records how far a deed is; on disk when this returns. One that is about to begin must not begin after an
    /// error.
    pub fn tell(&self, deed: &Deed, stage: Stage) -> Outcome<(), Failure> {
        let begins = stage == Stage::Begun;
        let deed = deed.clone();
        let request = Request::Deed { deed, stage };
        match &self.0 {
            By::Own(trail, who) if begins => Ok(trail.announce(audit::begun(who, &request))?),
            _ => self.done(&request),
        }
    }

    /// Records what was tried, and how it ended.
    pub(super) fn ended(&self, request: &Request, outcome: &Outcome<(), String>) -> Result<()> {
        match &self.0 {
            // Whatever is asked of the daemon itself, it records by itself.
            By::Daemon(_) => Ok(()),
            By::Own(trail, who) => trail.commit(audit::ended(who, request, outcome)),
        }
    }
}
