//! The only writer of the catalogue: the objects of each seat, and the states of their proofs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hsmux_token::{
    Class, MechanismInfo, NameMap, Object, ObjectChanges, ObjectId, Snapshot, TokenFlags,
    TokenInfo, ck,
};

use crate::Options;
use crate::amendments::Amendments;
use crate::catalogue::{Catalogue, Entries, Entry, Replica, ReplicaState};
use crate::mechanisms::{VendorMechanisms, union};
use crate::seatset::SeatSet;

/// The catalogue as it is being written; [`Registry::draw`] makes the next edition.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Entries,
    seats: BTreeMap<usize, Holder>,
    /// Neither parked nor removed.
    pub expected: SeatSet,
    /// Not yet asked for their objects since they are expected.
    pub unsettled: SeatSet,
    /// Of other hosts.
    pub remote: SeatSet,
    /// See [`Catalogue::is_complete`].
    partial: SeatSet,
    /// Of seats that are being read.
    pub amendments: Amendments,
    /// True if the broker's keys are as hsmux's own: neither shown nor served.
    hides_broker_keys: bool,
    vendors: VendorMechanisms,
    edition: u64,
    epoch: u64,
    visibly: bool,
}

/// A seat as the registry knows it.
#[derive(Clone)]
pub(crate) struct Holder {
    pub seat: Arc<str>,
    pub member: Arc<str>,
    pub info: Arc<TokenInfo>,
    /// Of the connection in service; 0 for none.
    pub generation: u64,
}

impl Registry {
    /// Nothing is known yet.
    pub fn new(options: &Options) -> Self {
        Self {
            hides_broker_keys: options.hides_broker_keys,
            ..Self::default()
        }
    }

    /// Installs the objects that a seat has read. Objects that are gone are removed. Answers the keys to prove.
    ///
    /// With `rejoined`, every key is proved again. Otherwise serving keys go on.
    pub fn install(
        &mut self,
        index: usize,
        holder: &Holder,
        snapshot: &Snapshot,
        rejoined: bool,
    ) -> Vec<ObjectId> {
        self.visibly |= self.seats.get(&index).map(|h| &h.info) != Some(&holder.info);
        self.seats.insert(index, holder.clone());
        self.set_partial(index, snapshot.is_partial);
        let mut present: HashMap<ObjectId, (&Object, bool)> = HashMap::new();
        for object in &snapshot.objects {
            let twins = present.contains_key(&object.id);
            present.insert(object.id, (object, twins));
        }
        for id in self.held_by(index) {
            if !present.contains_key(&id) {
                self.drop_replica(index, &id);
            }
        }
        let mut unproved = Vec::new();
        for (object, twins) in present.into_values() {
            unproved.extend(self.put(index, holder, object, twins, rejoined));
        }
        unproved.sort_unstable();
        unproved
    }

    /// Applies a change on the seat. Answers the objects to prove.
    pub fn amend(
        &mut self,
        index: usize,
        holder: &Holder,
        made: &[Object],
        gone: &[ObjectId],
    ) -> Vec<ObjectId> {
        for id in gone {
            self.drop_replica(index, id);
        }
        let mut unproved = Vec::new();
        for object in made {
            // It has new attributes, or is there a second time.
            let twins = self.replica(index, &object.id).is_some();
            unproved.extend(self.put(index, holder, object, twins, false));
        }
        unproved
    }

    /// True if this changes what the registry has of the seat.
    pub fn is_news(&self, index: usize, seen: &ObjectChanges) -> bool {
        let known =
            |object: &Object| self.replica(index, &object.id).map(|r| &*r.object) == Some(object);
        !seen.made.iter().all(known)
            || seen.gone.iter().any(|id| self.replica(index, id).is_some())
            || seen.is_partial != self.partial.contains(index)
    }

    fn set_partial(&mut self, index: usize, is_partial: bool) {
        self.visibly |= self.partial.contains(index) != is_partial;
        self.partial.set(index, is_partial);
    }

    /// Applies changes of others on the seat's token. Answers the objects to prove.
    pub fn learn(&mut self, index: usize, holder: &Holder, seen: &ObjectChanges) -> Vec<ObjectId> {
        self.set_partial(index, seen.is_partial);
        for id in &seen.gone {
            self.drop_replica(index, id);
        }
        let made = seen.made.iter();
        made.filter_map(|object| self.put(index, holder, object, false, false))
            .collect()
    }

    /// True if the effect of a change on the seat does not follow from `made` and `gone`.
    pub fn in_doubt(&self, index: usize, made: &[Object], gone: &[ObjectId]) -> bool {
        let doubles = |id: &ObjectId| self.replica(index, id).is_some_and(|r| r.twins);
        gone.iter().any(doubles) || made.iter().any(|object| self.may_name(index, object))
    }

    /// True if the object is the public half of a private key that has no public half so far.
    fn may_name(&self, index: usize, object: &Object) -> bool {
        let id = object.attributes.get(ck::CKA_ID);
        let nameless = |other: &Object| {
            other.id.class == Class::PRIVATE_KEY
                && other.attributes.get(ck::CKA_ID) == id
                && other.attributes.get(ck::CKA_PUBLIC_KEY_INFO).is_none()
        };
        matches!(object.id.class, Class::PUBLIC_KEY | Class::CERTIFICATE)
            && self.entries.values().any(|entry| {
                let replica = entry.replica(index);
                replica.is_some_and(|replica| nameless(&replica.object))
            })
    }

    /// True if another member is known to hold the object.
    pub fn is_held_beside(&self, member: &str, id: &ObjectId) -> bool {
        let mut replicas = self.entries.get(id).into_iter().flat_map(|e| &e.replicas);
        replicas.any(|replica| *replica.member != *member)
    }

    fn replica(&self, index: usize, id: &ObjectId) -> Option<&Replica> {
        self.entries.get(id)?.replica(index)
    }

    /// The seat is out of service for now, unless another connection of it serves meanwhile.
    pub fn away(&mut self, index: usize, generation: u64) {
        match self.seats.get_mut(&index) {
            Some(holder) if holder.generation == generation => holder.generation = 0,
            _ => return,
        }
        for id in self.held_by(index) {
            self.edit(&id, |entry| {
                for replica in entry.replicas.iter_mut().filter(|r| r.index == index) {
                    if replica.state == ReplicaState::Serving {
                        replica.state = ReplicaState::Away;
                    }
                }
            });
        }
    }

    /// The seat is gone for good.
    pub fn leave(&mut self, index: usize) {
        for id in self.held_by(index) {
            self.drop_replica(index, &id);
        }
        self.remote.remove(index);
        self.visibly |= self.seats.remove(&index).is_some();
    }

    /// Records the result of a proof on this connection.
    pub fn mark(&mut self, index: usize, generation: u64, id: &ObjectId, state: &ReplicaState) {
        let current = self.seats.get(&index).map(|holder| holder.generation);
        if current != Some(generation) {
            return;
        }
        self.edit(id, |entry| {
            for replica in entry.replicas.iter_mut().filter(|r| r.index == index) {
                replica.state = state.clone();
            }
        });
    }

    /// The seat no longer has the object.
    pub fn drop_replica(&mut self, index: usize, id: &ObjectId) {
        self.edit(id, |entry| entry.replicas.retain(|r| r.index != index));
    }

    /// The seat no longer has the object, as this connection has found.
    pub fn lose(&mut self, index: usize, generation: u64, id: &ObjectId) {
        let current = self.seats.get(&index).map(|holder| holder.generation);
        if current == Some(generation) {
            self.drop_replica(index, id);
        }
    }

    /// The next edition.
    pub fn draw(&mut self, options: &Options) -> Catalogue {
        self.edition += 1;
        let local = self.seats.iter();
        let local = local.filter(|(seat, _)| !self.remote.contains(**seat));
        self.vendors = VendorMechanisms::of(local.map(|(_, holder)| &*holder.info));
        self.epoch += u64::from(std::mem::take(&mut self.visibly));
        let mut mechanisms: NameMap<u64, SeatSet> = NameMap::default();
        for (index, holder) in &self.seats {
            let remote = self.remote.contains(*index);
            for mechanism in &holder.info.mechanisms {
                if self.vendors.offers(mechanism, remote) {
                    mechanisms.entry(mechanism.kind).or_default().insert(*index);
                }
            }
        }
        let serving = self
            .seats
            .iter()
            .filter(|(_, holder)| holder.generation != 0);
        let last = self
            .seats
            .last_key_value()
            .map_or(0, |(index, _)| index + 1);
        let mut generations = vec![0; last];
        for (index, holder) in &self.seats {
            generations[*index] = holder.generation;
        }
        Catalogue {
            epoch: self.epoch + 1,
            entries: self.entries.clone(),
            info: Arc::new(self.describe(options, false)),
            own: Arc::new(self.describe(options, true)),
            remote: self.remote,
            edition: self.edition,
            mechanisms,
            expected: self.expected,
            partial: self.partial,
            unsettled: self.unsettled,
            shown: self.seats.keys().copied().collect(),
            generations,
            in_service: serving.map(|(index, _)| *index).collect(),
            ..Catalogue::default()
        }
    }

    fn held_by(&self, index: usize) -> Vec<ObjectId> {
        let held = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.replica(index).is_some());
        held.map(|(id, _)| *id).collect()
    }

    /// Adds an object of the seat. Answers its identity if it has to be proved.
    fn put(
        &mut self,
        index: usize,
        holder: &Holder,
        object: &Object,
        twins: bool,
        rejoined: bool,
    ) -> Option<ObjectId> {
        let before = self.replica(index, &object.id).map(|r| &r.state);
        let state = state_after_reading(&object.id, before, rejoined);
        let unproved = matches!(state, ReplicaState::Proving | ReplicaState::Away);
        let replica = Replica {
            seat: Arc::clone(&holder.seat),
            member: Arc::clone(&holder.member),
            state,
            index,
            twins,
            object: Arc::new(object.clone()),
        };
        if self.entries.contains_key(&object.id) {
            self.edit(&object.id, |entry| {
                entry.replicas.retain(|r| r.index != index);
                entry.replicas.push(replica);
            });
        } else {
            let mut entry = Entry::new(replica);
            entry.hidden |= self.hides_broker_keys && entry.broker_key;
            self.visibly |= entry.visible();
            self.entries.insert(object.id, Arc::new(entry));
        }
        unproved.then_some(object.id)
    }

    /// Changes an entry, and notes whether applications can see the difference.
    fn edit(&mut self, id: &ObjectId, change: impl FnOnce(&mut Entry)) {
        let Some(shared) = self.entries.get_mut(id) else {
            return;
        };
        let before = shared.visible().then(|| Arc::clone(&shared.object));
        let entry = Arc::make_mut(shared);
        change(entry);
        entry.settle();
        entry.hidden |= self.hides_broker_keys && entry.broker_key;
        let after = entry.visible().then(|| Arc::clone(&entry.object));
        let gone = entry.replicas.is_empty();
        self.visibly |= before != after;
        if gone {
            self.entries.remove(id);
        }
    }

    /// Describes the pool as one token. For other hosts, the tokens of further hosts and vendors' mechanisms are left
    /// out. The serial number follows from the label alone, so programs that remember it find the pool again, whatever
    /// its members.
    fn describe(&self, options: &Options, to_hosts: bool) -> TokenInfo {
        let seats = || {
            let seats = self.seats.iter();
            let seats = seats.map(|(seat, holder)| (self.remote.contains(*seat), &*holder.info));
            seats.filter(move |(remote, _)| !(to_hosts && *remote))
        };
        let mechanisms = seats().flat_map(|(remote, info)| {
            let offered = move |one: &&MechanismInfo| self.vendors.offers(one, remote || to_hosts);
            info.mechanisms.iter().filter(offered)
        });
        let mut flags = TokenFlags::RNG
            | TokenFlags::LOGIN_REQUIRED
            | TokenFlags::USER_PIN_INITIALIZED
            | TokenFlags::TOKEN_INITIALIZED;
        flags.set(TokenFlags::WRITE_PROTECTED, options.read_only);
        let version = version();
        TokenInfo {
            label: options.label.clone(),
            manufacturer: "hsmux".into(),
            model: "pool".into(),
            serial: ObjectId::of_data(b"hsmux pool", options.label.as_bytes(), b"").to_string(),
            flags,
            hardware: version,
            firmware: version,
            library: "hsmux".into(),
            library_version: version,
            mechanisms: union(mechanisms),
            lanes: seats().map(|(_, info)| info.lanes.max(1)).sum(),
            pin_length: (1, 255),
            slot: None,
        }
    }
}

fn state_after_reading(
    id: &ObjectId,
    before: Option<&ReplicaState>,
    rejoined: bool,
) -> ReplicaState {
    let key = matches!(id.class, Class::PRIVATE_KEY | Class::SECRET_KEY);
    match before {
        _ if !key => ReplicaState::Serving,
        Some(ReplicaState::Serving) if !rejoined => ReplicaState::Serving,
        Some(ReplicaState::Serving | ReplicaState::Away) => ReplicaState::Away,
        _ => ReplicaState::Proving,
    }
}

fn version() -> (u8, u8) {
    let number = |text: &str| text.parse().unwrap_or(0);
    (
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
    )
}
