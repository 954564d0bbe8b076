//! The words of hsmux: what a token is, what can be asked of it, and how it fails.
//!
//! Everything above speaks these words and nothing else: a vendor's module, a worker process, a
//! pool of many tokens and a host at the other end of a network are each a [`Token`]. This crate
//! does no I/O but on the files whose permissions it verifies, and holds no `unsafe` but in the
//! allocator that overwrites what is freed.

mod attribute;
mod behalf;
mod blob;
mod error;
mod estimate;
mod fair;
#[cfg(feature = "fake")]
pub mod fake;
pub mod fork;
mod hash;
mod log_lines;
mod mechanism;
mod name_map;
mod object;
mod operation;
mod owner;
pub mod permissions;
mod rv;
mod size;
mod slots;
pub mod sync;
mod table;
mod template;
mod token;
mod uri;
mod verb;
mod watch;
mod wiping;

pub use attribute::{Attribute, Attributes};
pub use behalf::Behalf;
pub use blob::{Blob, Borrow, Secret};
pub use error::{Error, Kind, Result, Scope};
pub use estimate::{Estimate, KeyCapacity, Members, Times};
pub use fair::{Displaced, FairQueue, FairShares, share};
pub use hash::Hash;
pub use log_lines::LogLines;
pub use mechanism::{Gcm, Mechanism, Oaep, Params, Pss};
pub use name_map::{NameHasher, NameMap};
pub use object::{Class, Object, ObjectId, ObjectRef, SessionObject, Snapshot};
pub use operation::{Made, Operation, Outcome};
pub use owner::give_to_the_owner_of_the_folder;
pub use rv::{ends_connection, name as rv_name};
pub use slots::Slots;
pub use table::{
    BlockCipher, KeyKind, MechanismEntry, Prehash, Uses, entries, entry, entry_by_name,
    key_type_name,
};
pub use token::{
    Batch, DirectConnection, Done, MechanismInfo, Request, Token, TokenFlags, TokenInfo,
};
pub use uri::{Uri, UriError};
pub use verb::Verb;
pub use watch::{ObjectChanges, OperationKind, OperationPace};
pub use wiping::Wiping;

/// The numbers of PKCS#11 (`CKM_*`, `CKA_*`, `CKR_*`, `CKO_*`), for every crate alike.
pub use cryptoki_sys as ck;
