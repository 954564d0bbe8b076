//! The PIN breaker: a wrong PIN is tried once, by whichever process of this machine, and never again.
//!
//! A token locks after a few wrong PINs, for good. So every use of a PIN is journaled in the state
//! folder, one file for each token, by [`journal`]:
//!
//! 1. take the token's lock (`flock`), which serialises the logins of all processes;
//! 2. ask [`rules`] whether this version of the PIN may be tried; the token's own counter flags,
//!    read under the lock, have a say in it;
//! 3. write "attempting" and make it durable; where that fails there is no login;
//! 4. C_Login;
//! 5. write what came of it.
//!
//! A process that dies between 3 and 5 leaves "attempting" behind. That counts as a refusal, except
//! that a PIN which has succeeded before is tried once more, as "retrying". An answer that does not
//! say whether a try was counted is "unknown", and counts as a refusal of any PIN. A PIN's version is a keyed MAC over
//! token, user and PIN: the file says nothing about the PIN to whoever lacks the key beside it.

mod attempt;
mod beside;
mod journal;
mod rules;
mod store;
mod users;

use std::path::Path;

use hsmux_token::{Result, Uri};
use serde::{Deserialize, Serialize};

pub(crate) use attempt::{Attempt, login};
pub use beside::{learn, show};
pub(crate) use journal::Journal;
pub(crate) use rules::is_about_new_pin;
pub use users::state_of_user;

/// Whose PIN it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum User {
    /// CKU_USER.
    User,
    /// CKU_SO, the security officer.
    SecurityOfficer,
}

/// What became of a PIN when it was last used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A login was begun, and nobody wrote how it ended.
    Attempting,
    /// The same, after one that had been broken off already.
    Retrying,
    /// The token answered, but not whether it counted a wrong PIN. Never tried again.
    Unknown,
    /// The token refused it, or it was replaced by another. Never tried again.
    Refused,
    /// The token took it.
    Succeeded,
    /// Not tried: the token's counter is low, and this PIN has never been right.
    Held,
    /// A person has released it: it may be tried once more.
    Released,
    /// C_SetPIN or C_InitPIN to this PIN was begun: it is the token's PIN now, or the one before still is.
    Setting,
}

/// One version of a PIN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// Whose PIN.
    pub user: User,
    /// The MAC that stands for it, in hex.
    pub mac: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether the token has ever taken it.
    pub succeeded_before: bool,
    /// Whether the token's counter was full before the last attempt.
    pub counter_was_full: bool,
    /// When `outcome` was written, seconds since 1970.
    pub time: u64,
}

/// What is on record about one token's PINs, the one that was used last at the end.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// manufacturerID.
    pub manufacturer: String,
    /// model.
    pub model: String,
    /// serialNumber.
    pub serial: String,
    /// label, when it was last seen; not part of the token's identity.
    pub label: String,
    /// Every version that has been used.
    pub pins: Vec<Version>,
}

impl Version {
    /// Whether it is not tried by itself any more.
    pub fn is_held(&self) -> bool {
        match self.outcome {
            Outcome::Refused | Outcome::Held | Outcome::Unknown | Outcome::Retrying => true,
            Outcome::Attempting => !self.succeeded_before,
            Outcome::Succeeded | Outcome::Released | Outcome::Setting => false,
        }
    }
}

/// Everything on record in a state folder, by the daemon's workers and by those that have a user of their own.
pub fn list(state: &Path) -> Result<Vec<Record>> {
    let mut records = store::Folder::open(state)?.list()?;
    for users in users::states(state)? {
        records.extend(users::as_owner(&users, |state| {
            store::Folder::open(state)?.list()
        })?);
    }
    records.sort_by(|a, b| (&a.label, &a.serial).cmp(&(&b.label, &b.serial)));
    Ok(records)
}

/// Lets the PINs that are held on the tokens that `which` means be tried once more; answers which
/// records were changed. The token's own counter still holds a last try back.
pub fn release(state: &Path, which: &Uri) -> Result<Vec<Record>> {
    let mut changed = release_in(state, which)?;
    for users in users::states(state)? {
        changed.extend(users::as_owner(&users, |state| release_in(state, which))?);
    }
    Ok(changed)
}

fn release_in(state: &Path, which: &Uri) -> Result<Vec<Record>> {
    let folder = store::Folder::open(state)?;
    let mut changed = Vec::new();
    for record in folder.list()? {
        if which.matches_token(&record.token_info(), None) {
            let mut journal = Journal::open(state, &record.token_info())?;
            if journal.release()? {
                changed.push(journal.record().clone());
            }
        }
    }
    Ok(changed)
}
