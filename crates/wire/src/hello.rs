//! The greeting, which agrees on a frame version. Its own form never changes.

use std::ops::RangeInclusive;

use hsmux_token::{Error, Kind, Result};
use minicbor::{Decode, Encode};

use crate::{Hello, OLDEST, VERSION, Welcome};

/// The answer to a [`Hello`].
#[derive(Clone, Debug, Encode, Decode)]
pub enum Greeting {
    /// The server is ready.
    #[n(0)]
    Welcome(#[n(0)] Welcome),
    /// The server refuses, with the reason, and closes the connection.
    #[n(1)]
    Refused(#[n(0)] Error),
}

/// The versions that a peer speaks.
///
/// - Version 1: an answer is the bare [`Answer`](crate::Answer), without the catalogue's epoch:
///   [`Reply::epoch`](crate::Reply::epoch) is 0, and a client asks before each search.
/// - Version 2: an answer is a [`Reply`](crate::Reply), with the epoch.
/// - Version 3: a client may send [`Operation::Begin`](hsmux_token::Operation::Begin).
pub type Versions = RangeInclusive<u16>;

/// The versions that this code speaks.
pub const SPOKEN: Versions = OLDEST..=VERSION;

/// The newest version that both speak.
pub fn agree(ours: &Versions, theirs: &Versions) -> Result<u16> {
    let newest = *ours.end().min(theirs.end());
    let oldest = *ours.start().max(theirs.start());
    if oldest <= newest {
        return Ok(newest);
    }
    Err(Error::request(
        Kind::Protocol,
        format!(
            "this end speaks frame versions {} to {}, the other {} to {}: upgrade the older one",
            ours.start(),
            ours.end(),
            theirs.start(),
            theirs.end(),
        ),
    ))
}

impl Hello {
    /// The versions that the client speaks.
    pub fn versions(&self) -> Versions {
        self.oldest..=self.newest
    }
}
