//! PINs that are shown to a token beside PKCS#11: the same records, the same rules.

use std::path::Path;

use hsmux_token::{Result, TokenInfo};

use super::store::Folder;
use super::{Attempt, Journal, Outcome, Record, User};

/// Runs `call`, which shows a PIN to a token, unless the breaker holds it back. An error of it that
/// carries a CK_RV says by that what became of the PIN, as C_Login's does; any other: nobody knows.
///
/// The record is that of the serial number, whatever module it was made through; `token` names a new
/// one. The token's retry counter is the caller's to look at.
pub fn show(
    state: &Path,
    token: &TokenInfo,
    user: User,
    pin: &[u8],
    call: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut journal = journal(state, token)?;
    let name = format!("pkcs11:serial={}", token.serial);
    Attempt::new(&TokenInfo::default(), &name, user, Some(pin)).run(&mut journal, call)
}

/// Writes down that the token has this PIN: it was just given to it.
pub fn learn(state: &Path, token: &TokenInfo, user: User, pin: &[u8]) -> Result<()> {
    let mut journal = journal(state, token)?;
    let mac = journal.mac(user, Some(pin))?;
    journal.write(user, &mac, Outcome::Succeeded, true)
}

fn journal(state: &Path, token: &TokenInfo) -> Result<Journal> {
    let records = Folder::open(state)?.list()?;
    let same = |known: &&Record| !known.serial.is_empty() && known.serial == token.serial;
    let known = records.iter().find(same);
    Journal::open(state, &known.map_or(token.clone(), Record::token_info))
}
