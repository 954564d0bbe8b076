//! PINs of members: what is on record, and new ones.

use hsmux_module::pin;
use hsmux_token::{Error, Kind, Result};

use super::PinRow;
use crate::daemon::Running;

/// What is on record in the state folder.
pub fn list(running: &Running) -> Result<Vec<PinRow>> {
    let records = pin::list(&running.config().state)?;
    Ok(records.iter().filter_map(PinRow::of).collect())
}

/// Lets a held PIN be tried once more, and connects the member with it.
pub fn release(running: &Running, token: &str) -> Result<Vec<PinRow>> {
    let config = running.config();
    let member = config.member(token).ok_or_else(|| {
        Error::request(
            Kind::Invalid,
            format!("the configuration has no member {token}"),
        )
    })?;
    let released = pin::release(&config.state, &member.uri)?;
    if released.is_empty() {
        let message = format!("{token}: no PIN of it is held; hsmux pin list shows all");
        return Err(Error::request(Kind::Invalid, message));
    }
    running.shared.pool.resume(token)?;
    Ok(released.iter().filter_map(PinRow::of).collect())
}

/// Gives members new PINs.
pub fn rotate(running: &Running, tokens: &[String]) -> Result<Vec<String>> {
    let _ = (running, tokens);
    Err(Error::request(Kind::Unsupported, "pin rotate"))
}
