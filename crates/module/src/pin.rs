//! The PIN breaker: all processes of a host together try a wrong PIN only once, because tokens lock for good.
//! The steps, the table of records and the reasons are in `docs/internals/pins.md`.

mod attempt;
mod beside;
mod journal;
mod rules;
mod store;
mod users;

use std::path::Path;

use hsmux_token::{Result, Uri};
use serde::{Deserialize, Serialize};

pub(crate) use attempt::{PinAttempt, login};
pub use beside::{learn, show};
pub(crate) use journal::Journal;
pub(crate) use rules::is_about_new_pin;
pub use users::state_of_user;

/// The user of a PIN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinUser {
    /// CKU_USER.
    User,
    /// CKU_SO, the security officer.
    SecurityOfficer,
}

/// The outcome of a PIN's last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A login was begun, and its outcome was not recorded.
    Attempting,
    /// The same, for the second time.
    Retrying,
    /// The token did not report whether it counted a wrong PIN. Never tried again.
    Unknown,
    /// The token refused it, or another PIN replaced it. Never tried again.
    Refused,
    /// The token accepted it.
    Succeeded,
    /// Not tried: the token's counter is low, and this PIN has never succeeded.
    Held,
    /// An operator has released it for one more try.
    Released,
    /// C_SetPIN or C_InitPIN to this PIN was begun: either this or the previous one is the token's PIN.
    Setting,
}

/// One version of a PIN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// The user of the PIN.
    pub user: PinUser,
    /// The MAC of the PIN, in hex.
    pub mac: String,
    /// Its last outcome.
    pub outcome: Outcome,
    /// Whether the token has ever accepted it.
    pub succeeded_before: bool,
    /// Whether the token's counter was full before the last attempt.
    pub counter_was_full: bool,
    /// When `outcome` was written, seconds since 1970.
    pub time: u64,
}

/// The record of one token's PINs, the most recently used last.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// manufacturerID.
    pub manufacturer: String,
    /// model.
    pub model: String,
    /// serialNumber.
    pub serial: String,
    /// label, as last seen; not part of the token's identity.
    pub label: String,
    /// Every PIN that has been used.
    pub pins: Vec<Version>,
}

impl Version {
    /// Whether it is no longer tried automatically.
    pub fn is_held(&self) -> bool {
        match self.outcome {
            Outcome::Refused | Outcome::Held | Outcome::Unknown | Outcome::Retrying => true,
            Outcome::Attempting => !self.succeeded_before,
            Outcome::Succeeded | Outcome::Released | Outcome::Setting => false,
        }
    }
}

/// Lists all records of a state folder, including those of workers with a user of their own.
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

/// Permits one more try of the held PINs on the tokens that match `which`; returns the changed records.
/// A last try by the token's own counter is still refused.
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
