//! PINs that are shown to a token without PKCS#11, with the same records and rules.

use std::path::Path;

use hsmux_token::{Result, TokenInfo};

use super::store::Folder;
use super::{Journal, Outcome, PinAttempt, PinUser, Record};

/// Runs `call`, which shows a PIN, unless the breaker refuses. An error with a CK_RV counts as that of C_Login;
/// others leave the outcome unknown. Records are found by serial number. The caller checks the retry counter.
pub fn show(
    state: &Path,
    token: &TokenInfo,
    user: PinUser,
    pin: &[u8],
    call: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut journal = journal(state, token)?;
    let name = format!("pkcs11:serial={}", token.serial);
    PinAttempt::new(&TokenInfo::default(), &name, user, Some(pin)).run(&mut journal, call)
}

/// Records the PIN that the token was just given.
pub fn learn(state: &Path, token: &TokenInfo, user: PinUser, pin: &[u8]) -> Result<()> {
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
