//! Prepared signatures: C_SignInit runs while nobody waits. See `docs/internals/prepared-signatures.md`.
//! They wait [`LIFE`] at most, which also bounds the use of a deleted key. On failure the operation runs normally.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hsmux_token::sync::Mutex;
use hsmux_token::{Mechanism, ObjectId, Operation, OperationKind, Result, Verb};

use crate::ModuleToken;
use crate::execute::is_about_handle;
use crate::library::{Handle, Session};
use crate::sessions::Sessions;
use crate::usual_durations::Task;

/// How long a prepared signature waits.
const LIFE: Duration = Duration::from_millis(100);

/// Prepared signatures at once, each in a session.
const MOST: usize = 4;

/// Prepared signatures of one token.
#[derive(Default)]
pub(crate) struct PreparedSignatures(Mutex<PreparedState>);

#[derive(Default)]
struct PreparedState {
    ready: Vec<PreparedSignature>,
    /// Idle sessions, and the number of all.
    idle: Vec<Session>,
    open: usize,
    /// The last request.
    last: Option<SignatureRequest>,
    /// Counts changes of keys: a signature that is prepared during a change is discarded.
    edition: u64,
    /// The token has refused it once, or has no session left.
    never: bool,
}

/// A signature request without its data.
#[derive(Clone, PartialEq)]
struct SignatureRequest {
    key: ObjectId,
    mechanism: Mechanism,
}

/// A session after C_SignInit.
struct PreparedSignature {
    request: SignatureRequest,
    handle: Handle,
    session: Session,
    took: Duration,
    ends: Instant,
}

impl SignatureRequest {
    fn of(operation: &Operation) -> Option<Self> {
        let (verb, key, mechanism, _) = operation.key_use()?;
        (verb == Verb::Sign).then(|| Self {
            key,
            mechanism: mechanism.clone(),
        })
    }

    fn is_of(&self, operation: &Operation) -> bool {
        operation
            .key_use()
            .is_some_and(|(verb, key, mechanism, _)| {
                verb == Verb::Sign && key == self.key && *mechanism == self.mechanism
            })
    }
}

impl ModuleToken {
    /// Completes a prepared signature, if one fits.
    pub(crate) fn run_prepared(&self, operation: &Operation) -> Option<Bytes> {
        let (_, _, _, data) = operation.key_use()?;
        let ready = self.prepared.take(operation)?;
        let (library, request) = (self.sessions.library(), &ready.request);
        let begun = self.paces.begin();
        let signed = library.complete(
            ready.session,
            Verb::Sign,
            &request.mechanism,
            ready.handle,
            data,
        );
        let Ok(bytes) = signed else {
            self.prepared.close(&self.sessions, ready.session);
            return None;
        };
        self.prepared.leave(ready.session);
        if let Some(begun) = begun {
            let work =
                OperationKind::new(Verb::Sign, request.mechanism.kind, data.len(), bytes.len());
            let took = ready.took + begun.elapsed();
            self.paces.note(work, request.key, took);
        }
        Some(bytes)
    }

    /// Prepares another signature if two alike came in a row; returns until when it waits.
    pub(crate) fn make_ready(&self, operation: &Operation) -> Option<Instant> {
        let request = self.prepared.again(operation)?;
        if !self.usual.is_short(&Task::of(operation)?) {
            return None;
        }
        let made = self.prepare(request);
        // A missing key is reported by the operation itself.
        if let Err(error) = &made
            && !is_about_handle(error)
        {
            tracing::debug!(%error, token = self.name, "signatures are not made ready");
            self.prepared.0.lock().never = true;
        }
        made.ok()?
    }

    fn prepare(&self, request: SignatureRequest) -> Result<Option<Instant>> {
        let Some(handle) = self.handles.get(&request.key) else {
            return Ok(None);
        };
        // Ended here as well, because a lane may never be idle.
        self.prepared.end_old(&self.sessions);
        let Some((session, edition)) = self.prepared.session(&self.sessions)? else {
            return Ok(None);
        };
        let handle = self.in_use(session, request.key, handle);
        let (library, begun) = (self.sessions.library(), Instant::now());
        if let Err(error) = library.begin(session, Verb::Sign, &request.mechanism, handle) {
            self.prepared.close(&self.sessions, session);
            return Err(error);
        }
        let now = Instant::now();
        let ends = now + LIFE;
        let ready = PreparedSignature {
            request,
            handle,
            session,
            took: now - begun,
            ends,
        };
        Ok(self
            .prepared
            .keep(&self.sessions, ready, edition)
            .then_some(ends))
    }
}

impl PreparedSignatures {
    fn take(&self, operation: &Operation) -> Option<PreparedSignature> {
        let ready = &mut self.0.lock().ready;
        let now = Instant::now();
        let fits = |ready: &PreparedSignature| ready.ends > now && ready.request.is_of(operation);
        let index = ready.iter().position(fits)?;
        Some(ready.swap_remove(index))
    }

    /// The request, if the one before was alike.
    fn again(&self, operation: &Operation) -> Option<SignatureRequest> {
        let mut state = self.0.lock();
        if state.never {
            return None;
        }
        let last = state.last.take().filter(|last| last.is_of(operation));
        state.last = last.clone().or_else(|| SignatureRequest::of(operation));
        last
    }

    fn session(&self, sessions: &Sessions) -> Result<Option<(Session, u64)>> {
        let mut state = self.0.lock();
        let edition = state.edition;
        if let Some(session) = state.idle.pop() {
            return Ok(Some((session, edition)));
        }
        if state.open >= MOST {
            return Ok(None);
        }
        state.open += 1;
        drop(state);
        let opened = sessions.open_more();
        if opened.is_err() {
            self.0.lock().open -= 1;
        }
        Ok(Some((opened?, edition)))
    }

    /// Keeps it unless keys have changed in the meantime; returns whether it did.
    fn keep(&self, sessions: &Sessions, ready: PreparedSignature, edition: u64) -> bool {
        let mut state = self.0.lock();
        if state.edition == edition {
            state.ready.push(ready);
            return true;
        }
        drop(state);
        self.close(sessions, ready.session);
        false
    }

    /// Returns a session for the next one.
    fn leave(&self, session: Session) {
        self.0.lock().idle.push(session);
    }

    fn close(&self, sessions: &Sessions, session: Session) {
        self.0.lock().open -= 1;
        sessions.close(session);
    }

    /// Ends those of a key that has changed or been deleted.
    pub fn end(&self, sessions: &Sessions, key: ObjectId) {
        self.0.lock().edition += 1;
        self.end_those(sessions, |ready| ready.request.key == key);
    }

    /// Ends those that have waited too long.
    pub fn end_old(&self, sessions: &Sessions) {
        let now = Instant::now();
        self.end_those(sessions, |ready| ready.ends <= now);
    }

    /// Ends all, for other work or at the end.
    pub fn end_all(&self, sessions: &Sessions) {
        self.end_those(sessions, |_| true);
        let idle = {
            let mut state = self.0.lock();
            state.open -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        for session in idle {
            sessions.close(session);
        }
    }

    fn end_those(&self, sessions: &Sessions, which: impl Fn(&PreparedSignature) -> bool) {
        let mut state = self.0.lock();
        let ended: Vec<_> = state.ready.extract_if(.., |ready| which(ready)).collect();
        state.open -= ended.len();
        drop(state);
        for ready in ended {
            sessions.close(ready.session);
        }
    }
}
