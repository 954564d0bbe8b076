//! Keeps searches apart from calls that create objects: if both run at once, SoftHSM 2.6.1 fails with CKR_GENERAL_ERROR
//! and leaves half an object. Searches run alone, creations in parallel; uses of keys wait for neither.

use std::time::{Duration, Instant};

use hsmux_token::ck::CKA_TOKEN;
use hsmux_token::sync::SharedTurn;
use hsmux_token::{Attributes, Result};

use crate::ModuleToken;
use crate::library::{Handle, Session};

/// How long one waits for the other. A key may take a minute, and other tokens tolerate both at once.
const POLITE: Duration = Duration::from_secs(1);

impl ModuleToken {
    /// The handles of the token's objects, at most `most` (C_FindObjects).
    pub(crate) fn search(&self, session: Session, most: usize) -> Result<Vec<Handle>> {
        let of_token = Attributes::default().with_flag(CKA_TOKEN, true);
        let _alone = self.object_cache.store.lock_until(Instant::now() + POLITE);
        self.sessions.library().find(session, &of_token, most)
    }

    /// Delays searches while objects are created or changed; `None` if one takes too long.
    pub(crate) fn making(&self) -> Option<SharedTurn<'_>> {
        self.object_cache.store.share_until(Instant::now() + POLITE)
    }
}
