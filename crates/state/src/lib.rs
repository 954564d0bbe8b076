//! Files that survive a crash, and locks between processes.
//!
//! | module | what it does |
//! |---|---|
//! | `error` | words for a file that could not be used, with the remedy |
//! | `file` | replace a file in one step, create one that is not there, open one that only its owner may read |
//! | `folder` | private folders, and durable names in a folder |
//! | `json` | names of objects and CBOR values in JSON |
//! | `lock` | one process at a time (flock(2)) |
//! | `timestamp` | times in JSON and for people |
//! | `versions` | changes of files, found without reading them |
//!
//! Errors have no path: callers know what the file is for. [`failed`] says it for files of the state folder.

#![warn(missing_docs)]

mod error;
mod file;
mod folder;
pub mod json;
mod lock;
mod timestamp;
mod versions;

pub use error::failed;
pub use file::{
    create_new, create_private, open_private, remove, replace, replace_among_others, replace_like,
};
pub use folder::{private_folder, sync_folder, sync_parent};
pub use lock::{FileLock, LockFailed};
pub use timestamp::Timestamp;
pub use versions::FileVersions;
