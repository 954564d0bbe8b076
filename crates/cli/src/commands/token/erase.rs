//! Confirmations and refusals of `hsmux token init --erase`.

use std::path::{Path, PathBuf};

use hsmux_daemon::admin::{AdminRequest, AdminResponse, MemberStatus};
use hsmux_module::{SlotInfo, public_objects};
use hsmux_token::Uri;

use crate::consent::erasure;
use crate::context::Context;
use crate::exit::Exit;

/// Refuses a token that is a member of a running daemon. Without a readable configuration it looks for no daemon.
pub fn spare_member(context: &Context, module: &Path, token: &SlotInfo) -> anyhow::Result<()> {
    let Ok(draft) = context.draft() else {
        return Ok(());
    };
    let Ok(AdminResponse::Status(daemon)) = context.ask(&AdminRequest::Status) else {
        return Ok(());
    };
    let module = real(module);
    let configured = |name: &str| {
        let mut sections = draft.config.tokens.iter();
        sections.any(|section| {
            section.name == name && real(&section.module) == module && token.fits(&section.uri)
        })
    };
    let is_member = |member: &&MemberStatus| uses(member, token, configured(&member.name));
    let Some(MemberStatus { name, .. }) = daemon.members.iter().find(is_member) else {
        return Ok(());
    };
    let why = format!(
        "{token} is the member {name} of the daemon that runs; nothing was erased. Take it out of service first: \
         hsmux token park {name}, or hsmux token remove {name}. --force erases it all the same"
    );
    Err(Exit::Usage.because(why))
}

/// Whether a member uses this token. `configured` says whether its configuration can match it.
fn uses(member: &MemberStatus, token: &SlotInfo, configured: bool) -> bool {
    if member.remote || matches!(member.state.as_str(), "parked" | "removed") {
        return false;
    }
    let seen = member.token.as_ref().map(|seen| {
        let token = &token.token;
        (&seen.serial, &seen.label, &seen.manufacturer, &seen.model)
            == (
                &token.serial,
                &token.label,
                &token.manufacturer,
                &token.model,
            )
    });
    match seen {
        // If its URI matches two tokens, the member may have this one or the other.
        Some(same) if member.in_service > 0 => same,
        _ => configured || seen == Some(true),
    }
}

fn real(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

/// Reports the loss, and asks for the token's label unless `yes`.
pub fn confirm(yes: bool, module: &Path, token: &SlotInfo, slot: &Uri) -> anyhow::Result<()> {
    // Only a hint: most keys are hidden before a login.
    let objects = match public_objects(module, slot) {
        Ok(1) => "1 object is".to_owned(),
        Ok(count) => format!("{count} objects are"),
        Err(_) => "an unknown number of objects is".to_owned(),
    };
    let id = token.id.to_string();
    let names = [&*token.token.label, &token.token.serial, &id];
    let lost = format!("{token} with all its keys; {objects} visible without login");
    erasure(yes, "token", &names, &lost)
}
