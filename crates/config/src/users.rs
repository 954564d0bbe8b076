//! Users and groups by name or number.

use nix::unistd::{Group, Uid, User as Entry};

/// A user, by name or number in the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// By name.
    Name(String),
    /// By number.
    Id(u32),
}

impl User {
    /// Its user id, if it exists.
    pub fn id(&self) -> Option<u32> {
        match self {
            Self::Id(id) => Some(*id),
            Self::Name(name) => Some(Entry::from_name(name).ok()??.uid.as_raw()),
        }
    }

    /// Its home, if it exists.
    pub fn home(&self) -> Option<std::path::PathBuf> {
        let entry = match self {
            Self::Id(id) => Entry::from_uid((*id).into()),
            Self::Name(name) => Entry::from_name(name),
        };
        Some(entry.ok()??.dir)
    }
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Id(id) => write!(f, "{id}"),
        }
    }
}

/// A user's id and main group id, for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// The user id.
    pub uid: u32,
    /// The id of its main group.
    pub gid: u32,
}

impl User {
    /// Its entry in the user database of this host, if any.
    pub fn account(&self) -> Option<Account> {
        let entry = match self {
            Self::Id(id) => Entry::from_uid(Uid::from_raw(*id)),
            Self::Name(name) => Entry::from_name(name),
        };
        let entry = entry.ok()??;
        Some(Account {
            uid: entry.uid.as_raw(),
            gid: entry.gid.as_raw(),
        })
    }
}

/// A group's id, by name or number.
pub fn group_id(name: &str) -> Option<u32> {
    match name.parse() {
        Ok(id) => Some(id),
        Err(_) => Some(Group::from_name(name).ok()??.gid.as_raw()),
    }
}
