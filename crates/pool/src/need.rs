//! The requirements of an operation, and the seats that fulfil them.

use std::fmt::Write;
use std::sync::Arc;

use hsmux_token::{
    Class, Error, Kind, Mechanism, ObjectId, ObjectRef, Operation, Result, SessionObject, Uses, ck,
};
use smallvec::SmallVec;

use crate::catalogue::{Catalogue, Entry, ReplicaState};
use crate::client_session::Affinity;
use crate::owner::{Cost, Owner};
use crate::seatset::SeatSet;

/// The requirements of an operation. It is small, because waiting requests keep it.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub objects: SmallVec<[(ObjectRef, Uses); 2]>,
    pub mechanism: Option<u64>,
    /// The pool's own request to one connection, by its generation: not counted against the queue.
    pub pinned: Option<u64>,
    /// Tokens of other hosts may not serve it.
    pub here: bool,
    /// The seat for the session objects that it makes.
    pub affinity: Option<Arc<Affinity>>,
    pub call: &'static str,
    pub repeatable: bool,
    /// It removes a PKCS#1 v1.5 padding. Its handling must not depend on whether the padding was good.
    pub unpads: bool,
    /// How many times the seat's time-out it may run.
    pub patience: u32,
    pub cost: Cost,
}

/// Seats for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// In service, with all objects proved.
    pub able: SeatSet,
    /// These and those that may be so soon.
    pub hopeful: SeatSet,
    /// The edition of the catalogue.
    pub edition: u64,
    /// The factor by which its keys make it slower than with others.
    pub times: u64,
}

/// The time of a new key, in multiples of the time-out: an RSA key on a card takes minutes. It does not depend on the
/// key's size, because programs choose the size. A token that hangs is found only after this time.
const PATIENCE_FOR_NEW_KEYS: u32 = 10;

impl Need {
    pub fn of(operation: &Operation) -> Self {
        let first = match operation {
            Operation::Use { verb, .. } | Operation::Begin { verb, .. } => verb.needs(),
            Operation::Derive { .. } => Uses::DERIVE,
            Operation::Wrap { .. } => Uses::WRAP,
            Operation::Unwrap { .. } => Uses::UNWRAP,
            _ => Uses::empty(),
        };
        let uses = [first, Uses::empty()];
        let slow = matches!(
            operation,
            Operation::Generate { .. } | Operation::GeneratePair { .. }
        );
        let mechanism = operation.mechanism().map(|mechanism| mechanism.kind);
        Self {
            objects: operation.objects().copied().zip(uses).collect(),
            mechanism,
            pinned: None,
            // No host lets others export a key.
            here: operation.exports(),
            affinity: None,
            call: operation.call(),
            repeatable: operation.repeatable(),
            unpads: mechanism == Some(ck::CKM_RSA_PKCS)
                && first.intersects(Uses::DECRYPT | Uses::UNWRAP),
            patience: if slow { PATIENCE_FOR_NEW_KEYS } else { 1 },
            cost: Cost::of(operation, Owner::default()),
        }
    }

    /// The same for a client session with this affinity, or else for this owner.
    pub fn at(operation: &Operation, affinity: Option<&Arc<Affinity>>, owner: Owner) -> Self {
        let need = Self::of(operation);
        let owner = affinity.map_or(owner, |affinity| affinity.owner);
        Self {
            cost: Cost { owner, ..need.cost },
            here: need.here || matches!(owner, Owner::Host(_)),
            affinity: affinity
                .filter(|_| operation.makes_session_objects())
                .cloned(),
            ..need
        }
    }

    /// The same on one connection. Its objects need not be proved.
    pub fn pinned(operation: &Operation, generation: u64) -> Self {
        Self {
            objects: SmallVec::new(),
            mechanism: None,
            here: false,
            pinned: Some(generation),
            cost: Cost::POOL,
            ..Self::of(operation)
        }
    }

    /// Objects of tokens that it uses.
    pub fn token_objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.iter().filter_map(|(object, _)| match object {
            ObjectRef::Token(id) => Some(*id),
            ObjectRef::Session(_) => None,
        })
    }

    /// Session objects that it uses.
    pub fn session_objects(&self) -> impl Iterator<Item = SessionObject> {
        self.objects.iter().filter_map(|(object, _)| match object {
            ObjectRef::Session(session) => Some(*session),
            ObjectRef::Token(_) => None,
        })
    }

    /// The seat that holds the session objects, by the generation of its connection.
    pub fn owner(&self) -> Option<u64> {
        self.session_objects().next().map(|session| session.owner)
    }

    /// The seats that can serve it. An operation that no seat can ever serve is refused here, with the reason.
    pub fn route(&self, catalogue: &Catalogue) -> Result<Route> {
        let mut route = Route {
            able: catalogue.in_service,
            hopeful: catalogue.expected,
            edition: catalogue.edition,
            times: 1,
        };
        if self.here {
            route.able = route.able.minus(&catalogue.remote);
            route.hopeful = route.hopeful.minus(&catalogue.remote);
        }
        let mut together: Option<SeatSet> = None;
        for (object, uses) in &self.objects {
            let (able, hopeful) = match object {
                ObjectRef::Token(id) => {
                    let (able, hopeful, times) = self.holders(catalogue, id, *uses)?;
                    route.times = route.times.max(times);
                    (able, hopeful)
                }
                ObjectRef::Session(session) => {
                    let seat = catalogue.locate(session.owner);
                    let seat = SeatSet::of(seat.ok_or_else(|| self.unknown(object))?);
                    (seat, seat)
                }
            };
            route.able = route.able.and(&able);
            route.hopeful = route.hopeful.and(&hopeful);
            let all = together.map_or(hopeful, |others| others.and(&hopeful));
            if all.is_empty() {
                return Err(self.apart());
            }
            together = Some(all);
        }
        if let Some(generation) = self.pinned {
            let seat = catalogue.locate(generation);
            let ended = || Error::lost("the token's connection has ended");
            let seat = SeatSet::of(seat.ok_or_else(ended)?);
            (route.able, route.hopeful) = (seat, seat);
        }
        if let Some(kind) = self.mechanism {
            route = self.with_mechanism(route, kind, catalogue)?;
        }
        Ok(match &self.affinity {
            Some(affinity) => affinity.narrow(route, catalogue),
            None => route,
        })
    }

    fn holders(
        &self,
        catalogue: &Catalogue,
        id: &ObjectId,
        uses: Uses,
    ) -> Result<(SeatSet, SeatSet, u64)> {
        let known = catalogue.entries.get(id).filter(|entry| !entry.hidden);
        let Some(entry) = known else {
            // A seat that has not yet shown its objects may hold it.
            return if catalogue.unsettled.is_empty() {
                Err(self.unknown(&ObjectRef::Token(*id)))
            } else {
                Ok((SeatSet::EMPTY, catalogue.unsettled, 1))
            };
        };
        if entry.forbidden.intersects(uses) {
            let refused = Error::vendor(self.call, ck::CKR_KEY_FUNCTION_NOT_PERMITTED);
            return Err(refused.at(format_args!("{} {id}", id.class.name())));
        }
        let hopeful = entry.hopeful.or(&catalogue.unsettled);
        if hopeful.is_empty() {
            return Err(self.unproved(entry));
        }
        Ok((entry.serving, hopeful, entry.times))
    }

    fn with_mechanism(&self, route: Route, kind: u64, catalogue: &Catalogue) -> Result<Route> {
        if catalogue.mechanisms.is_empty() {
            return Ok(route);
        }
        let having = catalogue.mechanisms.get(&kind).copied().unwrap_or_default();
        if Mechanism::is_vendor_defined(kind) && !self.may_be_vendors(&route, &having, catalogue) {
            return Err(self.no_mechanism(kind, "is for signatures by members that all have it"));
        }
        let narrowed = Route {
            able: route.able.and(&having),
            hopeful: route.hopeful.and(&having),
            ..route
        };
        if narrowed.hopeful.is_empty() && !route.hopeful.is_empty() {
            return Err(self.no_mechanism(kind, "is not offered by any member that could serve"));
        }
        Ok(narrowed)
    }

    /// True for a vendor's mechanism, if it signs with a private key and all known members of the key have it.
    fn may_be_vendors(&self, route: &Route, having: &SeatSet, catalogue: &Catalogue) -> bool {
        let private = |object: &ObjectRef| match object {
            ObjectRef::Token(id) => id.class == Class::PRIVATE_KEY,
            ObjectRef::Session(_) => true,
        };
        let signs =
            matches!(&self.objects[..], [(key, uses)] if *uses == Uses::SIGN && private(key));
        let known = route.hopeful.and(&catalogue.shown);
        signs && known.minus(having).is_empty()
    }

    fn no_mechanism(&self, kind: u64, why: &str) -> Error {
        let name = Mechanism::plain(kind).name();
        Error::request(Kind::NoMechanism, format!("{}: {name} {why}", self.call))
    }

    /// The object is not there, or no longer.
    pub fn unknown(&self, object: &ObjectRef) -> Error {
        let message = match object {
            ObjectRef::Token(id) => {
                format!("{}: no {} {id} in the pool", self.call, id.class.name())
            }
            ObjectRef::Session(_) => format!(
                "{}: the session object is gone: the worker that held it has ended",
                self.call
            ),
        };
        Error::request(Kind::UnknownObject, message)
    }

    /// The error if no seat holds all objects, and none can get them.
    fn apart(&self) -> Error {
        let message = format!("{}: its objects live on different members", self.call);
        let code = ck::CKR_KEY_HANDLE_INVALID;
        Error::request(Kind::Vendor(code), message)
    }

    fn unproved(&self, entry: &Entry) -> Error {
        let id = entry.object.id;
        let mut message = format!("{}: no copy of {id:?} has proved itself", self.call);
        for replica in &entry.replicas {
            if let ReplicaState::Unproved(reason) = &replica.state {
                let _ = write!(message, "; {}: {reason}", replica.seat);
            }
        }
        Error::pool(Kind::Unproved, message)
    }
}

#[cfg(test)]
mod tests {
    use hsmux_token::{Attributes, Mechanism};

    use super::*;

    /// Otherwise a hang of the token would be hidden for hours behind one program's large key.
    #[test]
    fn a_larger_key_has_no_more_time() {
        let rsa = |bits| {
            Need::of(&Operation::GeneratePair {
                mechanism: Mechanism::plain(ck::CKM_RSA_PKCS_KEY_PAIR_GEN),
                public: Attributes::default().with_number(ck::CKA_MODULUS_BITS, bits),
                private: Attributes::default(),
            })
        };
        let patience = |bits| rsa(bits).patience;
        assert_eq!(patience(2048), PATIENCE_FOR_NEW_KEYS);
        assert_eq!(patience(u64::MAX), PATIENCE_FOR_NEW_KEYS);
    }
}
