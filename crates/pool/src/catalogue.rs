//! The objects of the pool at one moment. Every request reads it, and a change replaces it as a whole.

use std::sync::{Arc, OnceLock};

use hsmux_software::unchecked_kind;
use hsmux_token::{Attributes, Class, NameMap, Object, ObjectId, Snapshot, TokenInfo, Uses, ck};

use crate::owner::times_longer_with;
use crate::seatset::SeatSet;

/// All objects of the pool with their replicas.
#[derive(Default, Debug)]
pub struct Catalogue {
    /// Grows at each change that applications can see; says nothing across restarts.
    pub epoch: u64,
    /// The objects by their identity.
    pub entries: Entries,
    /// The pool as one token.
    pub info: Arc<TokenInfo>,
    /// The same without the tokens of other hosts.
    pub own: Arc<TokenInfo>,
    /// Grows at each change.
    pub(crate) edition: u64,
    /// Which seats have a mechanism, in service or not.
    pub(crate) mechanisms: NameMap<u64, SeatSet>,
    /// All seats that are in service.
    pub(crate) in_service: SeatSet,
    /// Seats of other hosts.
    pub(crate) remote: SeatSet,
    /// All that are neither parked nor removed.
    pub(crate) expected: SeatSet,
    /// Pools, members of which are away and may have more objects.
    pub(crate) partial: SeatSet,
    /// Those that have not yet shown their objects, or failed to.
    pub(crate) unsettled: SeatSet,
    /// Those that have shown their objects since they were added, in service or not.
    pub(crate) shown: SeatSet,
    /// The connections in service, by seat; 0 where there is none.
    pub(crate) generations: Vec<u64>,
    pub(crate) snapshot: OnceLock<Arc<Snapshot>>,
}

/// Entries are shared with the catalogue's earlier and later states.
pub type Entries = NameMap<ObjectId, Arc<Entry>>;

/// One object and who holds it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its readable attributes on the first member that holds it.
    pub object: Arc<Object>,
    /// In the order of the seats.
    pub replicas: Vec<Replica>,
    /// Used by hsmux itself: not shown, not served.
    pub hidden: bool,
    /// A key of the broker: shown only to clients that name it.
    pub broker_key: bool,
    pub(crate) serving: SeatSet,
    /// Seats that serve, or will once they are back and proved.
    pub(crate) hopeful: SeatSet,
    /// Uses that the object's own attributes forbid.
    pub(crate) forbidden: Uses,
    /// How many times longer than others an operation with it takes.
    pub(crate) times: u64,
}

/// One seat's copy of an object.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The seat.
    pub seat: Arc<str>,
    /// The physical token behind the seat.
    pub member: Arc<str>,
    /// Its state, with a reason if it does not serve.
    pub state: ReplicaState,
    pub(crate) index: usize,
    /// What its token says of it.
    pub object: Arc<Object>,
    /// The seat may hold it more than once: when one is deleted, only the token knows of the others.
    pub(crate) twins: bool,
}

/// The state of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It has proved itself, or needs no proof, and its seat is in service.
    Serving,
    /// It is being proved for the first time.
    Proving,
    /// It served before; its seat is away, or proves it anew.
    Away,
    /// It did not prove itself and does not serve: why and, after the last semicolon, what to do.
    Unproved(String),
}

/// Objects whose label starts so are hsmux's own.
pub const HIDDEN_LABEL: &str = "hsmux-transport";

/// What the CKA_ID of the broker's keys begins with: it says which version of which key an object is.
pub const BROKER_MARK: &[u8; 5] = b"hsmb\x01";

/// Which byte of that CKA_ID says which of a version's keys it is: 0 is the key itself, the others serve it.
pub const BROKER_ROLE: usize = BROKER_MARK.len() + 1;

/// True if these are attributes of a key of the broker.
pub fn has_broker_mark(attributes: &Attributes) -> bool {
    let id = attributes.get(ck::CKA_ID).unwrap_or_default();
    id.starts_with(BROKER_MARK)
}

/// True if an object is a key of the broker. A certificate may stand beside its key.
pub fn is_broker_key(object: &Object) -> bool {
    object.id.class != Class::CERTIFICATE && has_broker_mark(&object.attributes)
}

impl Catalogue {
    /// An object that applications may see.
    pub fn get(&self, id: &ObjectId) -> Option<&Arc<Entry>> {
        self.entries.get(id).filter(|entry| entry.visible())
    }

    /// Grows at each change, also at those that applications cannot see.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// True if a token of this host has the object, and may serve with it.
    pub fn is_own(&self, entry: &Entry) -> bool {
        let own = |replica: &&Replica| !self.remote.contains(replica.index);
        entry.replicas.iter().filter(own).any(Replica::good)
    }

    /// True if a key can be used by a mechanism on a seat where it serves. While it serves nowhere, the seats where it
    /// may serve soon count. For an unknown key any seat counts.
    pub fn can(&self, key: &ObjectId, mechanism: u64) -> bool {
        let having = self.mechanisms.get(&mechanism);
        let having = having.copied().unwrap_or_default();
        let able = match self.entries.get(key) {
            Some(entry) if entry.is_unable(mechanism) => return false,
            Some(entry) if entry.serving.is_empty() => entry.hopeful.and(&having),
            Some(entry) => entry.serving.and(&having),
            None => having,
        };
        !able.is_empty()
    }

    /// True if no member has the object, and no absent member may have it.
    pub fn lacks(&self, id: &ObjectId) -> bool {
        self.is_complete() && !self.entries.contains_key(id)
    }

    /// True if no absent member may have other objects.
    pub fn is_complete(&self) -> bool {
        let all_serve = self.expected.minus(&self.in_service).is_empty();
        self.is_served() && all_serve && self.partial.and(&self.in_service).is_empty()
    }

    /// True if a token of this host that is away has the object.
    pub fn may_return(&self, id: &ObjectId) -> bool {
        self.get(id).is_some_and(|entry| {
            let away = |replica: &Replica| replica.state == ReplicaState::Away;
            self.is_own(entry) && entry.replicas.iter().any(away)
        })
    }

    /// True if any seat is in service.
    pub fn is_served(&self) -> bool {
        !self.in_service.is_empty()
    }

    /// The seat whose connection in service has this generation.
    pub(crate) fn locate(&self, generation: u64) -> Option<usize> {
        let found = |current: &u64| *current == generation && generation != 0;
        self.generations.iter().position(found)
    }

    /// All objects that applications may see, in the order of their names.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        self.snapshot.get_or_init(|| {
            let visible = self.entries.values().filter(|entry| entry.visible());
            let mut objects: Vec<_> = visible.map(|entry| Object::clone(&entry.object)).collect();
            objects.sort_unstable_by_key(|object| object.id);
            Arc::new(Snapshot {
                is_partial: !self.is_complete(),
                epoch: self.epoch,
                objects,
            })
        })
    }
}

impl Entry {
    pub(crate) fn new(replica: Replica) -> Self {
        let mut entry = Self {
            object: Arc::clone(&replica.object),
            replicas: vec![replica],
            hidden: false,
            broker_key: false,
            serving: SeatSet::EMPTY,
            hopeful: SeatSet::EMPTY,
            forbidden: Uses::empty(),
            times: 1,
        };
        entry.settle();
        entry
    }

    /// True if applications see it: from its first proof on, also while all replicas are away for a moment.
    pub fn visible(&self) -> bool {
        !self.hidden && self.replicas.iter().any(Replica::good)
    }

    /// Members whose copy serves now.
    pub fn members(&self) -> Vec<&str> {
        let mut members: Vec<&str> = Vec::new();
        for replica in self
            .replicas
            .iter()
            .filter(|r| r.state == ReplicaState::Serving)
        {
            if !members.contains(&&*replica.member) {
                members.push(&replica.member);
            }
        }
        members
    }

    pub(crate) fn replica(&self, seat: usize) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.index == seat)
    }

    /// Computes the fields that follow from the replicas.
    pub(crate) fn settle(&mut self) {
        self.replicas.sort_by_key(|replica| replica.index);
        let first = self
            .replicas
            .iter()
            .find(|r| r.good())
            .or(self.replicas.first());
        if let Some(first) = first {
            self.object = Arc::clone(&first.object);
        }
        let seats = |of: fn(&ReplicaState) -> bool| {
            let those = self.replicas.iter().filter(|replica| of(&replica.state));
            those.map(|replica| replica.index).collect()
        };
        self.serving = seats(|state| *state == ReplicaState::Serving);
        self.hopeful = seats(|state| !matches!(state, ReplicaState::Unproved(_)));
        self.forbidden = forbidden(&self.object);
        self.times = times_longer_with(&self.object);
        self.hidden = is_hidden(&self.object);
        self.broker_key = is_broker_key(&self.object);
    }
}

impl Replica {
    /// The reason why a serving copy is not proved. `None` if it is proved, or needs no proof.
    pub fn unchecked(&self) -> Option<String> {
        let serves =
            self.state == ReplicaState::Serving && self.object.id.class == Class::PRIVATE_KEY;
        let kind = serves.then(|| unchecked_kind(&self.object.attributes))??;
        Some(format!(
            "hsmux cannot check keys of type {kind}; it is used on member {} alone",
            self.member
        ))
    }

    fn good(&self) -> bool {
        matches!(self.state, ReplicaState::Serving | ReplicaState::Away)
    }
}

/// True if an object is hsmux's own.
pub(crate) fn is_hidden(object: &Object) -> bool {
    let label = object.attributes.get(ck::CKA_LABEL);
    label.is_some_and(|label| label.starts_with(HIDDEN_LABEL.as_bytes()))
}

/// Uses by the attribute that allows them (PKCS#11 3.0, sections 4.7 to 4.10).
const ALLOWED_BY: [(Uses, u64); 8] = [
    (Uses::ENCRYPT, ck::CKA_ENCRYPT),
    (Uses::DECRYPT, ck::CKA_DECRYPT),
    (Uses::SIGN, ck::CKA_SIGN),
    (Uses::SIGN_RECOVER, ck::CKA_SIGN_RECOVER),
    (Uses::VERIFY, ck::CKA_VERIFY),
    (Uses::WRAP, ck::CKA_WRAP),
    (Uses::UNWRAP, ck::CKA_UNWRAP),
    (Uses::DERIVE, ck::CKA_DERIVE),
];

/// The uses that an object's attributes forbid. The token decides about other uses.
fn forbidden(object: &Object) -> Uses {
    let key = matches!(
        object.id.class,
        Class::PRIVATE_KEY | Class::SECRET_KEY | Class::PUBLIC_KEY
    );
    if !key {
        return Uses::all();
    }
    let not = ALLOWED_BY
        .iter()
        .filter(|(_, allowed_by)| object.attributes.flag(*allowed_by) == Some(false));
    not.map(|(uses, _)| *uses).collect()
}
