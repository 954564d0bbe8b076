//! A replica serves only after it has proved that it holds the key.
//!
//! Keys are proved one by one and serve as soon as they are proved. A private key proves itself
//! against its public half ([`private`]), a secret key against another member's copy ([`secret`]).

mod private;
mod secret;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{
    Attributes, Class, Error, Kind, Mechanism, Object, ObjectId, ObjectRef, Operation, Outcome,
    Result, SessionObject, ck,
};
use parking_lot::{Condvar, Mutex};

use crate::catalogue::ReplicaState;
use crate::core::Core;
use crate::job::Attempt;
use crate::need::Need;
use crate::record::Connection;
use crate::scheduler::Term;

/// What a proof found.
enum Finding {
    Proved,
    /// The copy is another key, or cannot be proved: why.
    Not(String),
}

/// How many keys are proved at the same time, over all seats.
const AT_ONCE: usize = 8;

/// The catalogue is drawn anew at most so often while many keys are being proved.
const DRAWN_EVERY: Duration = Duration::from_millis(20);

/// A proof that fails for another reason than the key is tried so often.
const TRIES: usize = 3;

impl Core {
    /// Proves these keys of a seat, and lets each serve or not.
    pub fn prove(self: &Arc<Self>, connection: &Arc<Connection>, ids: &[ObjectId]) {
        let mut ids: Vec<_> = ids.iter().filter(|id| provable(id)).copied().collect();
        // Private keys first: they wait for nobody.
        ids.sort_by_key(|id| id.class == Class::SECRET_KEY);
        let mut found = Vec::new();
        let mut drawn: Option<Instant> = None;
        for id in ids {
            let Some(state) = self.prove_one(connection, &id) else {
                continue;
            };
            found.push((id, state));
            if drawn.is_none_or(|at| at.elapsed() >= DRAWN_EVERY) {
                self.record_findings(connection, &mut found);
                drawn = Some(Instant::now());
            }
        }
        self.record_findings(connection, &mut found);
    }

    fn record_findings(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        found: &mut Vec<(ObjectId, ReplicaState)>,
    ) {
        if found.is_empty() || !connection.is_current() {
            return;
        }
        let index = connection.record.index;
        self.publish(|registry| {
            for (id, state) in found.drain(..) {
                registry.mark(index, connection.generation, &id, &state);
            }
        });
    }

    /// `None`: the connection has ended, or the object is gone.
    fn prove_one(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        id: &ObjectId,
    ) -> Option<ReplicaState> {
        let mut last = None;
        for _ in 0..TRIES {
            if !connection.is_current() {
                return None;
            }
            let catalogue = self.catalogue.load();
            let entry = catalogue.entries.get(id)?;
            let object = Arc::clone(&entry.replica(connection.record.index)?.object);
            if let Some(reason) = unprovable(&object, entry.hidden) {
                return Some(ReplicaState::Unproved(reason.into()));
            }
            let finding = match id.class {
                Class::SECRET_KEY => secret::prove(self, connection, &object),
                _ => private::prove(self, connection, &object),
            };
            match finding {
                Ok(Finding::Proved) => return Some(ReplicaState::Serving),
                Ok(Finding::Not(reason)) => {
                    tracing::error!(seat = %connection.record.name, "{id:?} is not proved: {reason}");
                    return Some(ReplicaState::Unproved(reason));
                }
                Err(error) if error.kind() == Kind::UnknownObject => {
                    let index = connection.record.index;
                    self.publish(|registry| registry.drop_replica(index, id));
                    return None;
                }
                Err(error) => last = Some(error),
            }
        }
        Some(ReplicaState::Unproved(format!(
            "the proof failed: {}",
            last?
        )))
    }

    /// Runs an operation of a proof on this very connection, in turn with its other requests.
    fn on(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        operation: &Operation,
    ) -> Result<Outcome> {
        let need = Need::pinned(operation, connection.generation);
        let term = Term {
            deadline: Instant::now() + connection.record.seat.timeout + self.options.deadline,
            patience: 1,
        };
        let lane = self.wait_for_lane(&need, &Attempt::default(), term)?;
        let _turn = self.turns.take();
        self.run_on(lane, operation, term)
    }
}

fn provable(id: &ObjectId) -> bool {
    matches!(id.class, Class::PRIVATE_KEY | Class::SECRET_KEY)
}

/// Keys that are not used for a proof, and why.
fn unprovable(object: &Object, hidden: bool) -> Option<&'static str> {
    if hidden {
        return Some("kept for hsmux itself");
    }
    if object.attributes.flag(ck::CKA_ALWAYS_AUTHENTICATE) == Some(true) {
        return Some(
            "CKA_ALWAYS_AUTHENTICATE: each use asks for the PIN again, which a pool does not give; \
             make the key without it to have it served",
        );
    }
    None
}

/// Whether an error says that the token does not do it this way, so that another way is tried.
fn not_this_way(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            ck::CKR_MECHANISM_INVALID
                | ck::CKR_MECHANISM_PARAM_INVALID
                | ck::CKR_KEY_FUNCTION_NOT_PERMITTED
                | ck::CKR_KEY_TYPE_INCONSISTENT
                | ck::CKR_KEY_SIZE_RANGE
                | ck::CKR_DATA_LEN_RANGE
                | ck::CKR_DATA_INVALID
                | ck::CKR_ARGUMENTS_BAD
                | ck::CKR_FUNCTION_NOT_SUPPORTED
                | ck::CKR_TEMPLATE_INCONSISTENT
                | ck::CKR_ATTRIBUTE_TYPE_INVALID
                | ck::CKR_ATTRIBUTE_VALUE_INVALID
        )
    ) || matches!(error.kind(), Kind::NoMechanism | Kind::Unsupported)
}

/// Makes a session object that may be read, reads its value, and destroys it. `None`: the token
/// does not show the value.
fn make_and_read(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    make: &Operation,
) -> Result<Option<Vec<u8>>> {
    let answer = core.on(connection, make)?.into_objects()?;
    let Some((session, object)) = answer
        .into_iter()
        .find_map(|new| Some((new.session?, new.object)))
    else {
        return Ok(None);
    };
    let mut value = object.attributes.get(ck::CKA_VALUE).map(<[u8]>::to_vec);
    if value.is_none() {
        let read = Operation::Read {
            object: ObjectRef::Session(session),
        };
        let read = core.on(connection, &read)?.into_objects()?;
        let shown = read
            .first()
            .and_then(|made| made.object.attributes.get(ck::CKA_VALUE));
        value = shown.map(<[u8]>::to_vec);
    }
    destroy(core, connection, session);
    Ok(value)
}

/// The template of a session object whose value may be read.
fn readable_secret() -> Attributes {
    Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_SECRET_KEY)
        .with_number(ck::CKA_KEY_TYPE, ck::CKK_GENERIC_SECRET)
        .with_flag(ck::CKA_TOKEN, false)
        .with_flag(ck::CKA_SENSITIVE, false)
        .with_flag(ck::CKA_EXTRACTABLE, true)
}

/// Best effort: a session object ends with its worker anyway.
fn destroy(core: &Arc<Core>, connection: &Arc<Connection>, session: SessionObject) {
    let object = ObjectRef::Session(session);
    let _ = core.on(connection, &Operation::Destroy { object });
}

fn has(connection: &Connection, mechanism: &Mechanism) -> bool {
    connection.info.mechanism(mechanism.kind).is_some()
}

/// Random bytes of the host.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::pool(
            Kind::Environment,
            format!("no random bytes from the system: {error}"),
        )
    })?;
    Ok(bytes)
}

/// A counting semaphore.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Mutex<usize>,
    left: Condvar,
}

pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    fn take(&self) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while *taken >= AT_ONCE {
            self.left.wait(&mut taken);
        }
        *taken += 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.left.notify_one();
    }
}
