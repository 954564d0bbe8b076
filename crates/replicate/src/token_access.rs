//! One token while something is done on it: operations with a deadline, and session objects that go again.

use hsmux_token::{
    Attributes, Blob, Error, Kind, Made, Mechanism, Object, ObjectId, ObjectRef, Operation,
    Outcome, Result, Token, Verb, ck,
};
use std::time::{Duration, Instant};

/// How long the removal of a session object may take.
const TIDY: Duration = Duration::from_secs(10);

/// A token, its name for messages, and how long an operation may take.
#[derive(Clone, Copy)]
pub(super) struct TokenAccess<'a> {
    pub name: &'a str,
    pub token: &'a dyn Token,
    pub limit: TimeLimit,
}

/// How long operations may take.
#[derive(Clone, Copy)]
pub(super) enum TimeLimit {
    /// All together, until then.
    Until(Instant),
    /// Each, so long: for runs over many keys.
    Each(Duration),
}

impl TimeLimit {
    fn deadline(self) -> Instant {
        match self {
            Self::Until(deadline) => deadline,
            Self::Each(time) => Instant::now() + time,
        }
    }
}

impl<'a> TokenAccess<'a> {
    /// Runs an operation; an error says on which member.
    pub fn run(&self, operation: &Operation) -> Result<Outcome> {
        self.token
            .execute(operation, self.limit.deadline())
            .map_err(|e| e.at(self.name))
    }

    /// Runs an operation that makes one object.
    pub fn make(&self, operation: &Operation) -> Result<Made> {
        let made = self.run(operation)?.into_objects()?;
        made.into_iter()
            .next()
            .ok_or_else(|| nothing(self.name, operation))
    }

    /// Makes a session object, which is destroyed when the answer is dropped.
    pub fn make_session(&self, operation: &Operation) -> Result<TemporaryObject<'a>> {
        let made = self.make_sessions(operation)?;
        made.into_iter()
            .next()
            .ok_or_else(|| nothing(self.name, operation))
    }

    /// Makes session objects, each of which is destroyed when it is dropped.
    pub fn make_sessions(&self, operation: &Operation) -> Result<Vec<TemporaryObject<'a>>> {
        let made = self.run(operation)?.into_objects()?;
        let on_token = made.iter().any(|made| made.session.is_none());
        let passing = made
            .into_iter()
            .map(|made| TemporaryObject {
                access: *self,
                reference: reference(&made),
                made,
            })
            .collect();
        if on_token {
            return Err(Error::token(
                Kind::Unsupported,
                format!(
                    "{}: {} made a token object where a session object was asked for",
                    self.name,
                    operation.call()
                ),
            ));
        }
        Ok(passing)
    }

    /// The readable attributes of a token object, if it is there.
    pub fn find(&self, id: ObjectId) -> Result<Option<Object>> {
        let found = self.find_renamed(id)?;
        Ok(found.filter(|object| object.id == id))
    }

    /// The same. An object that has just got another name may still answer by this one, and then says the other.
    pub fn find_renamed(&self, id: ObjectId) -> Result<Option<Object>> {
        let read = Operation::Read { object: id.into() };
        match self.make(&read) {
            Ok(Made { mut object, .. }) => {
                // A private key whose public half is gone is still known by its name.
                let identity = self.token.info().identity(self.name);
                if hsmux_software::lacks_public_half(&identity, &object) {
                    object.id = id;
                }
                Ok(Some(object))
            }
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Destroys a token object; says whether it was there.
    pub fn destroy(&self, object: ObjectRef) -> Result<bool> {
        match self.run(&Operation::Destroy { object }) {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// One keyed operation on data.
    pub fn with_key(
        &self,
        verb: Verb,
        key: ObjectRef,
        mechanism: Mechanism,
        data: impl Into<Blob>,
    ) -> Result<bytes::Bytes> {
        let data = data.into();
        self.run(&Operation::Use {
            verb,
            key,
            mechanism,
            data,
        })?
        .into_bytes()
    }

    /// True if the token offers a mechanism for a use (`CKF_*`).
    pub fn offers(&self, mechanism: u64, flag: u64) -> bool {
        offers(self.token, mechanism, flag)
    }
}

fn nothing(member: &str, operation: &Operation) -> Error {
    Error::protocol(format!("{member}: {} answered no object", operation.call()))
}

/// True if a token offers a mechanism for a use (`CKF_*`).
pub(super) fn offers(token: &dyn Token, mechanism: u64, flag: u64) -> bool {
    token
        .info()
        .mechanism(mechanism)
        .is_some_and(|info| info.flags & flag != 0)
}

/// True if an error means that the object does not exist.
pub(super) fn is_absent(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::UnknownObject
            | Kind::NoReplica
            | Kind::Vendor(ck::CKR_OBJECT_HANDLE_INVALID | ck::CKR_KEY_HANDLE_INVALID)
    )
}

/// A session object that is destroyed when it has served.
pub(super) struct TemporaryObject<'a> {
    access: TokenAccess<'a>,
    made: Made,
    reference: ObjectRef,
}

impl TemporaryObject<'_> {
    /// The object, for operations on the same token.
    pub fn reference(&self) -> ObjectRef {
        self.reference
    }

    /// Its readable attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.made.object.attributes
    }
}

impl Drop for TemporaryObject<'_> {
    fn drop(&mut self) {
        let access = TokenAccess {
            limit: TimeLimit::Each(TIDY),
            ..self.access
        };
        if let Err(error) = access.destroy(self.reference) {
            // It goes with its session or its worker at the latest.
            tracing::warn!(%error, "a session object was not destroyed");
        }
    }
}

/// How the token calls an object that it has just made.
pub(super) fn reference(made: &Made) -> ObjectRef {
    match made.session {
        Some(session) => ObjectRef::Session(session),
        None => ObjectRef::Token(made.object.id),
    }
}
