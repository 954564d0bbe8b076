//! The sessions of one token: opened once, lent for one operation at a time. One may come back with an
//! operation that goes on, for whoever goes on with it.

use std::time::Instant;

use hsmux_token::ck::{CKR_SESSION_COUNT, CKR_SESSION_HANDLE_INVALID};
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{Error, Kind, ObjectId, Result, Verb};

use crate::library::{Library, LibraryRef, Session, Slot};
use crate::stream::Stream;

/// In place of a session that was closed after an error, to be opened when it is next used.
const CLOSED: Session = 0;

/// All sessions of a token. They end with this; the module's own count of them keeps the login.
pub(crate) struct Sessions {
    library: LibraryRef,
    slot: Slot,
    lanes: Stack,
    /// The one that makes session objects, which live as long as it does. `None` on a token with a
    /// single session, whose only lane does both.
    keeper: Option<Stack>,
    count: u32,
}

/// Idle sessions; the one that was used last is warmest and is taken first.
#[derive(Default)]
struct Stack {
    idle: Mutex<Vec<Lane>>,
    freed: Condvar,
}

/// A session, and the operation that is active in it.
struct Lane {
    session: Session,
    stream: Option<Stream>,
}

/// What a session is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Anything that leaves nothing behind in the session.
    Work,
    /// To make session objects, or to read for a long time.
    Keep,
}

/// A session on loan.
pub(crate) struct Lease<'a> {
    sessions: &'a Sessions,
    stack: &'a Stack,
    lane: Lane,
}

impl Sessions {
    /// Opens one session to keep and as many as `wanted` to work with, or as many as the token has.
    pub(crate) fn open(library: LibraryRef, slot: Slot, wanted: u32) -> Result<Self> {
        let mut opened = Self {
            slot,
            lanes: Stack::default(),
            keeper: None,
            count: 0,
            library,
        };
        let first = opened.library.open_session(slot)?;
        let keeper = Stack::default();
        keeper.put(first);
        opened.keeper = Some(keeper);
        while opened.count < wanted.max(1) {
            match opened.library.open_session(slot) {
                Ok(session) => opened.lanes.put(session),
                Err(e) if e.code() == Some(CKR_SESSION_COUNT) => break,
                Err(e) => return Err(e),
            }
            opened.count += 1;
        }
        if opened.count == 0 {
            opened.lanes = opened.keeper.take().unwrap_or_default();
            opened.count = 1;
        }
        Ok(opened)
    }

    /// How many operations may run at once.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The module that they are sessions of.
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// A session in which no operation is active, as soon as one is idle.
    pub(crate) fn lease(&self, purpose: Purpose, deadline: Instant) -> Result<Lease<'_>> {
        let stack = match (purpose, &self.keeper) {
            (Purpose::Keep, Some(keeper)) => keeper,
            _ => &self.lanes,
        };
        let mut lease = self.lend(stack, deadline, |lane| lane.stream.is_none().into())?;
        lease.end_stream();
        lease.reopen()?;
        Ok(lease)
    }

    /// A session to go on with a stream, if there is one of this verb and key; or else an idle one.
    pub(crate) fn lease_stream(
        &self,
        verb: Verb,
        key: ObjectId,
        deadline: Instant,
    ) -> Result<(Lease<'_>, Option<Stream>)> {
        let mut lease = self.lend(&self.lanes, deadline, |lane| match &lane.stream {
            Some(stream) if stream.is_of(verb, key) => 2,
            None => 1,
            Some(_) => 0,
        })?;
        let goes_on = |stream: &mut Stream| stream.is_of(verb, key) && stream.is_young();
        let stream = lease.lane.stream.take_if(goes_on);
        lease.end_stream();
        lease.reopen()?;
        Ok((lease, stream))
    }

    fn lend<'a>(
        &'a self,
        stack: &'a Stack,
        deadline: Instant,
        rank: impl Fn(&Lane) -> u8,
    ) -> Result<Lease<'a>> {
        Ok(Lease {
            sessions: self,
            stack,
            lane: stack.pop(deadline, rank)?,
        })
    }
}

impl Stack {
    fn put(&self, session: Session) {
        self.idle.lock().push(Lane {
            session,
            stream: None,
        });
    }

    /// The warmest of those that rank highest.
    fn pop(&self, deadline: Instant, rank: impl Fn(&Lane) -> u8) -> Result<Lane> {
        let mut idle = self.idle.lock();
        loop {
            let places = idle.iter().enumerate();
            if let Some((place, _)) = places.max_by_key(|(_, lane)| rank(lane)) {
                return Ok(idle.remove(place));
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
        self.lane.session
    }

    /// Leaves an operation active, for the next who goes on with it.
    pub(crate) fn leave(&mut self, stream: Stream) {
        self.lane.stream = Some(stream);
    }

    /// After an error that may have left an operation active: the session is closed, and opened
    /// anew when it is next needed. The keeper stays, with its session objects.
    pub(crate) fn retire(&mut self) {
        let session = self.lane.session;
        if session == CLOSED || !std::ptr::eq(self.stack, &raw const self.sessions.lanes) {
            return;
        }
        // A session that cannot be closed is gone already, or is the module's loss.
        let closed = self.sessions.library.close_session(session);
        if let Err(e) = closed
            && e.code() != Some(CKR_SESSION_HANDLE_INVALID)
        {
            tracing::warn!("{e}");
        }
        self.lane.session = CLOSED;
    }

    /// [`Self::retire`], and a fresh session at once.
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.retire();
        self.reopen()
    }

    fn reopen(&mut self) -> Result<()> {
        if self.lane.session == CLOSED {
            self.lane.session = self.sessions.library.open_session(self.sessions.slot)?;
        }
        Ok(())
    }

    /// Ends the operation that somebody has left. A session whose operation does not end is not used again.
    fn end_stream(&mut self) {
        let Some(stream) = self.lane.stream.take() else {
            return;
        };
        let session = self.lane.session;
        if let Err(error) = self.sessions.library.end_parts(session, stream.verb()) {
            tracing::debug!(%error, "a session is opened anew");
            self.retire();
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let empty = Lane {
            session: CLOSED,
            stream: None,
        };
        let lane = std::mem::replace(&mut self.lane, empty);
        self.stack.idle.lock().push(lane);
        self.stack.freed.notify_one();
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let keeper = self.keeper.take();
        for stack in [Some(&self.lanes), keeper.as_ref()].into_iter().flatten() {
            let open = |lane: &Lane| lane.session != CLOSED;
            for lane in stack.idle.lock().drain(..).filter(open) {
                // Nobody is left to tell.
                let _ = self.library.close_session(lane.session);
            }
        }
    }
}
