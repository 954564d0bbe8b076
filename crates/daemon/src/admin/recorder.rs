//! What commands do by themselves, without the daemon: it is on the trail all the same.

use std::result::Result as Outcome;

use hsmux_audit::Trail;
use hsmux_config::Config;
use hsmux_token::Result;

use super::{AdminClient, AdminFailure, AdminRequest, LocalAction, Stage};
use crate::audit::{self, Who};
use crate::lock;

/// Who writes a command's lines: the daemon, or this process where none runs. It is found before the act, so
/// that nothing is done that cannot be recorded.
pub struct Recorder(RecorderKind);

enum RecorderKind {
    Daemon(AdminClient),
    Own(Trail, Who),
}

impl Recorder {
    /// The daemon, which has the trail.
    pub fn daemon(admin: AdminClient) -> Self {
        Self(RecorderKind::Daemon(admin))
    }

    /// This process, for no daemon runs; there may never have been one.
    pub fn own(config: &Config) -> Result<Self> {
        let (trail, who) = open(config)?;
        Ok(Self(RecorderKind::Own(trail, who)))
    }

    /// Records the progress of an action. The line is on disk when this returns. After an error an action must not
    /// begin.
    pub fn tell(&self, action: &LocalAction, stage: Stage) -> Outcome<(), AdminFailure> {
        let begins = stage == Stage::Begun;
        let action = action.clone();
        let request = AdminRequest::LocalAction { action, stage };
        match &self.0 {
            RecorderKind::Daemon(admin) => admin.ask(&request).map(drop),
            RecorderKind::Own(trail, who) if begins => Ok(audit::announce(trail, who, &request)?),
            RecorderKind::Own(trail, who) => {
                Ok(trail.commit(audit::ended(who, &request, &Ok(())))?)
            }
        }
    }
}

/// What the daemon would do, where none runs: with the same lines.
pub(super) fn without_daemon<T>(
    config: &Config,
    request: &AdminRequest,
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (trail, who) = open(config)?;
    audit::announce(&trail, &who, request)?;
    let result = act();
    let outcome = result.as_ref().map(|_| ()).map_err(ToString::to_string);
    trail.commit(audit::ended(&who, request, &outcome))?;
    result
}

fn open(config: &Config) -> Result<(Trail, Who)> {
    lock::make_folder(&config.state)?;
    let trail = Trail::open(&audit::settings(config))?;
    let user = rustix::process::getuid().as_raw();
    Ok((trail, Who::here(user, "hsmux, without a daemon")))
}
