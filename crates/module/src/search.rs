//! Searches of a token, and calls that make objects on it, kept apart.
//!
//! SoftHSM 2.6.1 answers C_CreateObject, C_UnwrapKey and C_GenerateKeyPair with CKR_GENERAL_ERROR, and leaves half
//! an object behind, where another thread of the process searches meanwhile: the search reads a file that is being
//! written, and takes the object for broken. So who searches does it alone, and makers work beside each other. No
//! use of a key waits for either.

use std::time::{Duration, Instant};

use hsmux_token::ck::CKA_TOKEN;
use hsmux_token::sync::SharedTurn;
use hsmux_token::{Attributes, Result};

use crate::ModuleToken;
use crate::library::{Handle, Session};

/// How long one waits for the other: a token may take a minute for a key, and others bear both at once.
const POLITE: Duration = Duration::from_secs(1);

impl ModuleToken {
    /// The handles of the token's objects, at most `most` (C_FindObjects).
    pub(crate) fn search(&self, session: Session, most: usize) -> Result<Vec<Handle>> {
        let of_token = Attributes::default().with_flag(CKA_TOKEN, true);
        let _alone = self.known.store.lock_until(Instant::now() + POLITE);
        self.sessions.library().find(session, &of_token, most)
    }

    /// Keeps searches away while objects are made or changed; `None` where one takes too long.
    pub(crate) fn making(&self) -> Option<SharedTurn<'_>> {
        self.known.store.share_until(Instant::now() + POLITE)
    }
}
