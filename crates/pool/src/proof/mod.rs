//! A replica serves only after it has proved that it holds the key.
//!
//! Keys are proved one by one and serve as soon as they are proved. A private key proves itself
//! against its public half ([`private`]), a secret key against another member's copy ([`secret`]).

mod answers;
mod awaited_keys;
mod counted;
mod fresh;
mod pair;
mod permits;
mod private;
mod secret;
mod trust;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{
    Attributes, Class, Error, Kind, Mechanism, Object, ObjectId, ObjectRef, Operation, Outcome,
    Result, SessionObject, ck,
};

use crate::catalogue::{ReplicaState, is_hidden};
use crate::clock;
use crate::core::Core;
use crate::job::{Purpose, RequestAttempts};
use crate::need::Need;
use crate::owner::Cost;
use crate::record::{SeatConnection, back_off};
use crate::scheduler::Term;
pub(crate) use answers::Answers;
pub(crate) use awaited_keys::AwaitedKeys;
use awaited_keys::ProofOrder;
use counted::{counted, is_counted};
pub(crate) use permits::ProofPermits;

/// The result of a proof.
enum Finding {
    Proved,
    /// The copy is another key, or cannot be proved: why, and after the last semicolon what to do.
    Not(String),
    /// The same for now: it is tried again.
    NotYet(String),
}

/// The least time between two editions of the catalogue while many keys are proved.
const DRAWN_EVERY: Duration = Duration::from_millis(20);

/// The most tries of a proof that fails for another reason than the key.
const TRIES: usize = 3;

impl Core {
    /// Proves these keys of a seat, and lets each serve or not.
    pub fn prove(self: &Arc<Self>, connection: &Arc<SeatConnection>, ids: &[ObjectId]) {
        self.prove_each(connection, ids, false);
    }

    /// Proves those of these keys whose uses are counted: a person has asked for it.
    pub fn prove_counted(self: &Arc<Self>, connection: &Arc<SeatConnection>, ids: &[ObjectId]) {
        let counted = |id: &&ObjectId| {
            let object = self.candidate(connection, id);
            object.is_some_and(|object| is_counted(&self.options, &object))
        };
        let ids: Vec<_> = ids.iter().filter(counted).copied().collect();
        self.prove_each(connection, &ids, true);
    }

    fn prove_each(self: &Arc<Self>, seat: &Arc<SeatConnection>, ids: &[ObjectId], by_hand: bool) {
        let mut ids: Vec<_> = ids.iter().filter(|id| provable(id)).copied().collect();
        // Private keys first: they wait for nobody.
        ids.sort_by_key(|id| id.class == Class::SECRET_KEY);
        let mut found = Vec::new();
        let mut failed = Vec::new();
        let mut drawn: Option<Instant> = None;
        for id in ProofOrder::new(&self.awaited_keys, ids) {
            let state = match self.prove_one(seat, &id, by_hand) {
                Ok(Some((state, is_final))) => {
                    failed.extend((!is_final).then_some(id));
                    state
                }
                Ok(None) => continue,
                Err(error) => {
                    failed.push(id);
                    ReplicaState::Unproved(format!(
                        "the proof failed: {error}; it is tried again by itself"
                    ))
                }
            };
            found.push((id, state));
            if drawn.is_none_or(|at| clock::now() - at >= DRAWN_EVERY) {
                self.record_findings(seat, &mut found);
                drawn = Some(clock::now());
            }
        }
        self.record_findings(seat, &mut found);
        self.try_again_later(seat, failed);
    }

    fn try_again_later(&self, connection: &SeatConnection, failed: Vec<ObjectId>) {
        if failed.is_empty() || !connection.is_current() {
            return;
        }
        let mut retry = connection.record.retry.lock();
        let at = clock::now() + back_off(retry.attempts);
        retry.attempts += 1;
        retry.ids.extend(failed);
        retry.at = Some(at);
        drop(retry);
        self.alarm.by(at);
    }

    /// Repeats failed proofs that are due. Answers when the next one is due.
    pub fn reprove_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for record in self.records() {
            let mut retry = record.retry.lock();
            match retry.at {
                Some(at) if at <= now => {
                    retry.at = None;
                    let ids = std::mem::take(&mut retry.ids);
                    drop(retry);
                    let connection = record.life.lock().connection.clone();
                    if let Some(connection) = connection {
                        self.in_background(&connection, move |core, connection| {
                            core.prove(connection, &ids);
                        });
                    }
                }
                at => next = next.into_iter().chain(at).min(),
            }
        }
        next
    }

    fn record_findings(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
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

    /// Proves one key. Answers whether it serves, and whether that is final. `None` if the connection has ended, or the
    /// object is gone. An error says nothing about the key.
    fn prove_one(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        id: &ObjectId,
        by_hand: bool,
    ) -> Result<Option<(ReplicaState, bool)>> {
        let last_word = |state| Ok(Some((state, true)));
        let mut tries = 0;
        loop {
            let Some(object) = self.candidate(connection, id) else {
                return Ok(None);
            };
            if connection.record.seat.connector.vouches() {
                return last_word(ReplicaState::Serving);
            }
            if let Some(reason) = unprovable(&object) {
                return last_word(ReplicaState::Unproved(reason.into()));
            }
            let is_counted = is_counted(&self.options, &object);
            if is_counted && !by_hand {
                return last_word(if connection.is_proved_by_hand(id) {
                    ReplicaState::Serving
                } else {
                    ReplicaState::Unproved(counted(&object))
                });
            }
            if self.is_proved_by_another(connection, id) {
                return last_word(ReplicaState::Serving);
            }
            let finding = match id.class {
                Class::SECRET_KEY => secret::prove(self, connection, &object),
                _ => private::prove(self, connection, &object),
            };
            tries += 1;
            match finding {
                Ok(Finding::Proved) => {
                    if is_counted {
                        connection.by_hand.lock().insert(*id);
                    }
                    return last_word(ReplicaState::Serving);
                }
                Ok(Finding::Not(reason)) => {
                    tracing::error!(seat = %connection.record.name, "{id:?} is not proved: {reason}");
                    return last_word(ReplicaState::Unproved(reason));
                }
                Ok(Finding::NotYet(reason)) => {
                    let state = ReplicaState::Unproved(reason);
                    self.tell_once(connection, id, &state);
                    return Ok(Some((state, false)));
                }
                Err(error) if error.kind() == Kind::UnknownObject => {
                    self.lost_sight(connection, *id);
                    return Ok(None);
                }
                Err(error) if tries >= TRIES => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Logs that a key is not proved, unless that is known.
    fn tell_once(&self, connection: &SeatConnection, id: &ObjectId, state: &ReplicaState) {
        let catalogue = self.catalogue.load();
        let entry = catalogue.entries.get(id);
        let known = entry.and_then(|entry| entry.replica(connection.record.index));
        if let ReplicaState::Unproved(reason) = state
            && known.is_none_or(|known| known.state != *state)
        {
            tracing::warn!(seat = %connection.record.name, "{id:?} is not proved yet: {reason}");
        }
    }

    /// Proofs that failed are tried again at once: another seat has come, or one has gone for good.
    pub fn hurry_proofs(&self) {
        for record in self.records() {
            let mut retry = record.retry.lock();
            if retry.at.is_some() {
                retry.at = Some(clock::now());
                retry.attempts = 0;
                self.alarm.now();
            }
        }
    }

    /// True if another worker of the same token serves with the key: it is the same key.
    fn is_proved_by_another(&self, connection: &SeatConnection, id: &ObjectId) -> bool {
        let catalogue = self.catalogue.load();
        let replicas = catalogue
            .entries
            .get(id)
            .map_or(&[][..], |entry| &entry.replicas);
        let own = &connection.record;
        let mut others = replicas.iter().filter(|replica| {
            replica.index != own.index
                && replica.member == own.member
                && replica.state == ReplicaState::Serving
        });
        others.any(|replica| {
            let record = self.record(replica.index);
            let other = record.and_then(|record| record.life.lock().connection.clone());
            other.is_some_and(|other| other.shares_token_with(connection))
        })
    }

    /// The key's object on this connection.
    fn candidate(&self, connection: &SeatConnection, id: &ObjectId) -> Option<Arc<Object>> {
        let catalogue = self.catalogue.load();
        let replica = catalogue
            .entries
            .get(id)?
            .replica(connection.record.index)?;
        connection.is_current().then(|| Arc::clone(&replica.object))
    }

    /// True if this connection may hold the object more than once.
    fn has_twins(&self, connection: &SeatConnection, id: &ObjectId) -> bool {
        let catalogue = self.catalogue.load();
        let entry = catalogue.entries.get(id);
        let replica = entry.and_then(|entry| entry.replica(connection.record.index));
        replica.is_some_and(|replica| replica.twins)
    }

    /// Runs an operation of a proof on this connection, queued with its other requests. A connection that does not
    /// serve yet has no others.
    fn on(
        self: &Arc<Self>,
        connection: &Arc<SeatConnection>,
        operation: &Operation,
    ) -> Result<Outcome> {
        let need = Need::pinned(operation, connection.generation);
        let timeout = connection.record.seat.timeout;
        if connection.comes_after_the_current() {
            return connection.token.execute(operation, clock::now() + timeout);
        }
        let term = || Term {
            deadline: clock::now() + timeout + self.options.deadline,
            patience: 1,
            cost: Cost::POOL,
        };
        let mut lane = self.wait_for_lane(&need, &RequestAttempts::default(), term())?;
        let _permit = self.proof_permits.take();
        lane.since = clock::now();
        self.run_on(&lane, operation, term(), Purpose::Proof)
    }
}

fn provable(id: &ObjectId) -> bool {
    matches!(id.class, Class::PRIVATE_KEY | Class::SECRET_KEY)
}

/// Keys that are not used for a proof, and why.
fn unprovable(object: &Object) -> Option<&'static str> {
    if is_hidden(object) {
        return Some("kept for hsmux itself");
    }
    if object.attributes.flag(ck::CKA_ALWAYS_AUTHENTICATE) == Some(true) {
        return Some(
            "CKA_ALWAYS_AUTHENTICATE: each use asks for the PIN again, which a pool does not give; \
             make a key without it to have it served",
        );
    }
    None
}

/// True if the token does not support this way of a proof. Another way is tried then.
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
    connection: &Arc<SeatConnection>,
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
fn destroy(core: &Arc<Core>, connection: &Arc<SeatConnection>, session: SessionObject) {
    let object = ObjectRef::Session(session);
    let _ = core.on(connection, &Operation::Destroy { object });
}

fn has(connection: &SeatConnection, mechanism: &Mechanism) -> bool {
    connection.info.mechanism(mechanism.kind).is_some()
}

/// Random bytes of the host.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    clock::random(&mut bytes).map_err(|error| {
        Error::pool(
            Kind::Environment,
            format!("no random bytes from the system: {error}"),
        )
    })?;
    Ok(bytes)
}
