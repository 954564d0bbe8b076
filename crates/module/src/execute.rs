//! One operation on one session: a cached handle, C_XInit, C_X.

use std::time::Instant;

use bytes::Bytes;
use hsmux_token::ck::*;
use hsmux_token::{
    Blob, Error, Kind, Mechanism, ObjectId, ObjectRef, Operation, OperationKind, Outcome, Result,
    Scope, Verb,
};

use crate::ModuleToken;
use crate::library::{Handle, Session};
use crate::sessions::{Lease, Purpose};

/// Permits vendor-defined mechanisms for signatures only: others could reveal keys.
fn refuse_vendor_defined(operation: &Operation) -> Result<()> {
    let signs = matches!(
        operation,
        Operation::Use {
            verb: Verb::Sign,
            ..
        } | Operation::Begin {
            verb: Verb::Sign,
            ..
        }
    );
    match operation.mechanism() {
        Some(mechanism) if Mechanism::is_vendor_defined(mechanism.kind) && !signs => {
            let error = Error::vendor(operation.call(), CKR_MECHANISM_INVALID);
            Err(error.at(mechanism.name()))
        }
        _ => Ok(()),
    }
}

/// More than applications ask for at once.
const MOST_RANDOM: u32 = 1 << 20;

impl ModuleToken {
    /// Runs an operation on this thread. If a handle is stale, it is looked up again once.
    pub(crate) fn run(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        refuse_vendor_defined(operation)?;
        if is_begin(operation) && self.sessions.is_only_one() {
            // Its session could not be closed without losing the login and the session objects.
            return Ok(Outcome::Done);
        }
        let purpose = if operation.makes_session_objects() {
            Purpose::Keep
        } else {
            Purpose::Work
        };
        // The lookup of an unknown object needs a session as well, so it comes before the lease.
        let handles = self.handles_of(operation)?;
        let mut lease = self.lease(purpose, deadline)?;
        let error = match self.attempt(&mut lease, operation, handles) {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        if !self.lost_an_object(&lease, operation, handles, &error) {
            return Err(self.explained(&mut lease, operation, handles, error));
        }
        self.forget(operation);
        drop(lease);
        let again = self.handles_of(operation)?;
        if again == handles || !operation.repeatable() {
            return Err(of_session_object(operation, error));
        }
        let mut lease = self.lease(purpose, deadline)?;
        self.attempt(&mut lease, operation, again)
            .map_err(|error| self.explained(&mut lease, operation, again, error))
    }

    /// Leases a session. If the token has none left, streams, prepared signatures and copies give theirs up.
    fn lease(&self, purpose: Purpose, deadline: Instant) -> Result<Lease<'_>> {
        self.sessions.lease(purpose, deadline).or_else(|error| {
            if error.code() != Some(CKR_SESSION_COUNT) {
                return Err(error);
            }
            self.streams.close_idle(&self.sessions);
            self.prepared.end_all(&self.sessions);
            if let Some(copies) = &self.copies {
                copies.end_all(&self.sessions);
            }
            self.sessions.lease(purpose, deadline)
        })
    }

    /// Runs once. If another operation is active in the session, nothing has happened yet: a new session replaces it.
    fn attempt(
        &self,
        lease: &mut Lease<'_>,
        operation: &Operation,
        handles: [Handle; 2],
    ) -> Result<Outcome> {
        let mut result = self.dispatch(lease.session(), operation, handles);
        if code(&result) == Some(CKR_OPERATION_ACTIVE) {
            lease.renew()?;
            result = self.dispatch(lease.session(), operation, handles);
        }
        if is_begin(operation) && result.is_ok() {
            // The operation ends only with its session (PKCS#11 2.40).
            lease.retire();
        }
        result
    }

    fn dispatch(
        &self,
        session: Session,
        operation: &Operation,
        [handle, second]: [Handle; 2],
    ) -> Result<Outcome> {
        let library = self.sessions.library();
        match operation {
            Operation::Use {
                verb: Verb::Verify,
                mechanism,
                data,
                ..
            } => self.verify_mac(session, mechanism, handle, data),
            Operation::Use {
                verb,
                key: ObjectRef::Token(key),
                mechanism,
                data,
            } => {
                let bytes = self.crypt(session, *verb, mechanism, (*key, handle), data)?;
                Ok(Outcome::Bytes(Blob(bytes)))
            }
            Operation::Use {
                verb,
                mechanism,
                data,
                ..
            } => {
                let bytes = library.crypt(session, *verb, mechanism, handle, data)?;
                Ok(Outcome::Bytes(Blob(bytes)))
            }
            Operation::Random { len } if *len > MOST_RANDOM => Err(Error::request(
                Kind::Invalid,
                format!("{len} random bytes are more than {MOST_RANDOM}"),
            )),
            Operation::Random { len } => {
                let bytes = library.random(session, *len as usize)?;
                Ok(Outcome::Bytes(bytes.into()))
            }
            Operation::Wrap { mechanism, .. } => {
                let wrapped = library.wrap(session, mechanism, handle, second)?;
                Ok(Outcome::Bytes(wrapped.into()))
            }
            Operation::Begin {
                verb, mechanism, ..
            } => {
                library.begin(session, *verb, mechanism, handle)?;
                Ok(Outcome::Done)
            }
            _ => self.change(session, operation, handle),
        }
    }

    /// Uses the copy of the key, if there is one.
    fn crypt(
        &self,
        session: Session,
        verb: Verb,
        mechanism: &Mechanism,
        (key, original): (ObjectId, Handle),
        data: &[u8],
    ) -> Result<Bytes> {
        let library = self.sessions.library();
        let handle = self.in_use(session, key, original);
        let begun = self.paces.begin();
        let bytes = match library.crypt(session, verb, mechanism, handle, data) {
            Err(error) if handle != original && is_of_the_copy(&error) => {
                if is_about_handle(&error) {
                    self.end_uses(key);
                }
                return library.crypt(session, verb, mechanism, original, data);
            }
            result => result?,
        };
        if let Some(begun) = begun
            && self.is_usual(key, handle != original)
        {
            let work = OperationKind::new(verb, mechanism.kind, data.len(), bytes.len());
            self.paces.note(work, key, begun.elapsed());
        }
        Ok(bytes)
    }

    /// C_Verify; `data` has the format of [`Verb::Verify`].
    fn verify_mac(
        &self,
        session: Session,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
    ) -> Result<Outcome> {
        let parts = data
            .split_first_chunk()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_be_bytes(*len) as usize));
        let Some((mac, message)) = parts else {
            return Err(Error::request(
                Kind::Invalid,
                "C_Verify: a MAC is longer than its request",
            ));
        };
        let library = self.sessions.library();
        library.verify(session, mechanism, key, message, mac)?;
        Ok(Outcome::Done)
    }

    /// The handles of the operation's objects, the key's first; 0 for none.
    fn handles_of(&self, operation: &Operation) -> Result<[Handle; 2]> {
        let mut handles = [0; 2];
        for (place, object) in handles.iter_mut().zip(operation.objects()) {
            *place = self.handle(object)?;
        }
        Ok(handles)
    }

    /// The handle of an object. If it is not cached, another process may have created it.
    pub(crate) fn handle(&self, object: &ObjectRef) -> Result<Handle> {
        let id = match object {
            ObjectRef::Session(object) => return Ok(object.handle),
            ObjectRef::Token(id) => id,
        };
        if let Some(handle) = self.handles.get(id) {
            return Ok(handle);
        }
        self.read_objects_for(id)?;
        self.handles.get(id).ok_or_else(|| not_there(id))
    }

    /// Whether the error means a deleted object. Some modules report a general error, which the handle then confirms.
    fn lost_an_object(
        &self,
        lease: &Lease<'_>,
        operation: &Operation,
        handles: [Handle; 2],
        error: &Error,
    ) -> bool {
        if !operation
            .objects()
            .any(|o| matches!(o, ObjectRef::Token(_)))
        {
            return false;
        }
        if is_about_handle(error) {
            return true;
        }
        lost_its_object(error) && {
            let library = self.sessions.library();
            let used = handles.into_iter().filter(|handle| *handle != 0);
            let mut classes = used.map(|h| library.attributes(lease.session(), h, &[CKA_CLASS]));
            classes.any(|class| class.is_err_and(|e| lost_its_object(&e)))
        }
    }

    /// The error for the caller: vendor codes that blame the token may concern the request's key.
    fn explained(
        &self,
        lease: &mut Lease<'_>,
        operation: &Operation,
        handles: [Handle; 2],
        error: Error,
    ) -> Error {
        let asks = error.code() == Some(CKR_USER_NOT_LOGGED_IN)
            && handles.iter().any(|key| self.asks_each_time(lease, *key));
        left_behind(lease, &error);
        if asks {
            let why = "the key wants its PIN for each use (CKA_ALWAYS_AUTHENTICATE), which a pool does not give";
            return Error::request(Kind::Unsupported, format!("{error}: {why}"));
        }
        of_session_object(operation, error)
    }

    /// Whether the key exists and requires a login for each use. A private key is invisible if the session's login has
    /// ended.
    fn asks_each_time(&self, lease: &Lease<'_>, key: Handle) -> bool {
        let library = self.sessions.library();
        let read = || library.attributes(lease.session(), key, &[CKA_ALWAYS_AUTHENTICATE]);
        key != 0 && read().is_ok_and(|read| read.flag(CKA_ALWAYS_AUTHENTICATE) == Some(true))
    }

    fn forget(&self, operation: &Operation) {
        for object in operation.objects() {
            if let ObjectRef::Token(id) = object {
                self.handles.remove(id);
            }
        }
    }
}

/// The error of an object that the token does not have.
pub(crate) fn not_there(id: &ObjectId) -> Error {
    let message = format!("no {} {id} on the token", id.class.name());
    Error::token(Kind::UnknownObject, message)
}

/// Retires a session after an error of the token: the operation may still be active in it.
fn left_behind(lease: &mut Lease<'_>, error: &Error) {
    if error.scope() == Scope::Token && !is_about_handle(error) {
        lease.retire();
    }
}

/// A stale handle of a session object is no fault of the token; handles of token objects were looked up again.
fn of_session_object(operation: &Operation, error: Error) -> Error {
    let of_session = |object: &ObjectRef| matches!(object, ObjectRef::Session(_));
    if is_about_handle(&error) && operation.objects().any(of_session) {
        return Error::request(Kind::UnknownObject, error.to_string());
    }
    error
}

fn is_begin(operation: &Operation) -> bool {
    matches!(operation, Operation::Begin { .. })
}

fn code(result: &Result<Outcome>) -> Option<u64> {
    result.as_ref().err().and_then(Error::code)
}

pub(crate) fn is_about_handle(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            CKR_OBJECT_HANDLE_INVALID
                | CKR_KEY_HANDLE_INVALID
                | CKR_WRAPPING_KEY_HANDLE_INVALID
                | CKR_UNWRAPPING_KEY_HANDLE_INVALID
        )
    )
}

/// Whether the copy may have caused the error: its attributes vanish while it is destroyed, and the key's permitted
/// uses may have changed. None of these codes concerns the data.
fn is_of_the_copy(error: &Error) -> bool {
    is_about_handle(error)
        || matches!(
            error.code(),
            Some(
                CKR_KEY_FUNCTION_NOT_PERMITTED
                    | CKR_KEY_SIZE_RANGE
                    | CKR_KEY_TYPE_INCONSISTENT
                    | CKR_MECHANISM_INVALID
            )
        )
}

/// Whether the error may mean a deleted object; some modules report a general error.
pub(crate) fn lost_its_object(error: &Error) -> bool {
    is_about_handle(error) || matches!(error.code(), Some(CKR_GENERAL_ERROR | CKR_FUNCTION_FAILED))
}
