//! The sessions of one token: opened once, leased for one operation at a time.

use std::time::Instant;

use hsmux_token::ck::{CKR_SESSION_COUNT, CKR_SESSION_HANDLE_INVALID};
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{Error, Kind, Result};

use crate::library::{Library, LibraryRef, Session, Slot};

/// Marks a session that was closed after an error and is opened at its next use.
const CLOSED: Session = 0;

/// All sessions of a token. They close on drop; the login lasts while the module counts at least one.
pub(crate) struct Sessions {
    library: LibraryRef,
    slot: Slot,
    lanes: Stack,
    /// The session of session objects, which live as long as it does. `None` if the token has only one session for
    /// everything.
    for_objects: Option<Stack>,
    count: u32,
}

/// Idle sessions; the one used last is taken first, because its memory is still cached.
#[derive(Default)]
struct Stack {
    idle: Mutex<Vec<Session>>,
    freed: Condvar,
}

/// The purpose of a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Work that leaves nothing behind in the session.
    Work,
    /// Creates session objects, or reads for a long time.
    Keep,
}

/// A session on loan.
pub(crate) struct Lease<'a> {
    sessions: &'a Sessions,
    stack: &'a Stack,
    session: Session,
}

impl Sessions {
    /// Opens one session for session objects and `wanted` for work, or as many as the token has.
    pub(crate) fn open(library: LibraryRef, slot: Slot, wanted: u32) -> Result<Self> {
        let mut opened = Self {
            slot,
            lanes: Stack::default(),
            for_objects: None,
            count: 0,
            library,
        };
        let first = opened.library.open_session(slot)?;
        let for_objects = Stack::default();
        for_objects.idle.lock().push(first);
        opened.for_objects = Some(for_objects);
        while opened.count < wanted.max(1) {
            match opened.library.open_session(slot) {
                Ok(session) => opened.lanes.idle.lock().push(session),
                Err(e) if e.code() == Some(CKR_SESSION_COUNT) => break,
                Err(e) => return Err(e),
            }
            opened.count += 1;
        }
        if opened.count == 0 {
            opened.lanes = opened.for_objects.take().unwrap_or_default();
            opened.count = 1;
        }
        Ok(opened)
    }

    /// How many operations may run at once.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether the only session does all work and holds session objects.
    pub(crate) fn is_only_one(&self) -> bool {
        self.for_objects.is_none()
    }

    /// The module of the sessions.
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// Opens an additional session, which the caller closes.
    pub(crate) fn open_more(&self) -> Result<Session> {
        self.library.open_session(self.slot)
    }

    /// Closes such a session and its active operation. If that fails, the session is gone, or the module leaks it.
    pub(crate) fn close(&self, session: Session) {
        if let Err(error) = self.library.close_session(session)
            && error.code() != Some(CKR_SESSION_HANDLE_INVALID)
        {
            tracing::warn!("{error}");
        }
    }

    /// Leases a session as soon as one is idle.
    pub(crate) fn lease(&self, purpose: Purpose, deadline: Instant) -> Result<Lease<'_>> {
        let stack = match (purpose, &self.for_objects) {
            (Purpose::Keep, Some(for_objects)) => for_objects,
            _ => &self.lanes,
        };
        let mut lease = Lease {
            sessions: self,
            stack,
            session: stack.pop(deadline)?,
        };
        if lease.session == CLOSED {
            lease.session = self.library.open_session(self.slot)?;
        }
        Ok(lease)
    }
}

impl Stack {
    fn pop(&self, deadline: Instant) -> Result<Session> {
        let mut idle = self.idle.lock();
        loop {
            if let Some(session) = idle.pop() {
                return Ok(session);
            }
            if self.freed.wait_until(&mut idle, deadline) {
                return Err(Error::token(
                    Kind::Deadline,
                    "all sessions of the token are busy, and the deadline has passed",
                ));
            }
        }
    }
}

impl Lease<'_> {
    /// The session's handle.
    pub(crate) fn session(&self) -> Session {
        self.session
    }

    /// Closes the session after an error that may have left an operation active; the next use reopens it.
    /// The session of session objects stays.
    pub(crate) fn retire(&mut self) {
        if self.session == CLOSED || !std::ptr::eq(self.stack, &raw const self.sessions.lanes) {
            return;
        }
        self.sessions.close(self.session);
        self.session = CLOSED;
    }

    /// [`Self::retire`], then opens a new session at once.
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.retire();
        if self.session == CLOSED {
            self.session = self.sessions.library.open_session(self.sessions.slot)?;
        }
        Ok(())
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut idle = self.stack.idle.lock();
        // At the bottom of the stack, because it may not open.
        let index = if self.session == CLOSED {
            0
        } else {
            idle.len()
        };
        idle.insert(index, self.session);
        drop(idle);
        self.stack.freed.notify_one();
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let for_objects = self.for_objects.take();
        for stack in [Some(&self.lanes), for_objects.as_ref()]
            .into_iter()
            .flatten()
        {
            for session in stack.idle.lock().drain(..).filter(|s| *s != CLOSED) {
                // An error here has no recipient.
                let _ = self.library.close_session(session);
            }
        }
    }
}
