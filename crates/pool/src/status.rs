//! How everything is, for people and for machines.

use std::time::Duration;

use hsmux_state::Timestamp;
use hsmux_token::{Class, ck};
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::catalogue::{Entry, ReplicaState};
use crate::clock;
use crate::core::Core;
use crate::record::{LifeState, Record};
use std::sync::atomic::Ordering;

/// The state of a pool. Durations are microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The label of the one token.
    pub label: String,
    /// Its serial number.
    pub serial: String,
    /// Grows with each change that applications can see.
    pub epoch: u64,
    /// Which of several free seats gets a request.
    pub policy: Policy,
    /// Operations that wait.
    pub waiting: usize,
    /// How many may wait.
    pub queue: usize,
    /// Changes of token objects that wait for the one under way; as many may as in `queue`.
    #[serde(default)]
    pub changes: usize,
    /// Members that have yet to make up for changes of token objects.
    #[serde(default)]
    pub debts: Vec<DebtStatus>,
    /// Copies that a new key has to have.
    pub replicas: usize,
    /// Whether changes are refused.
    pub read_only: bool,
    /// In the order of the configuration.
    pub seats: Vec<SeatStatus>,
    /// In the order of label and name.
    pub objects: Vec<ObjectStatus>,
}

/// Changes that a token has yet to make up for: it was away, or could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebtStatus {
    /// Its member's name, or its serial number if it was never seen as a member.
    pub member: String,
    /// Its serial number.
    pub serial: String,
    /// How many changes.
    pub changes: usize,
    /// How often it has failed to do the one that has failed most often, since the daemon's start.
    pub attempts: u64,
    /// Why that was.
    pub last_error: Option<String>,
}

/// The state of a seat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeatStatus {
    /// `hsm1#2`.
    pub name: String,
    /// `hsm1`.
    pub member: String,
    /// What it is doing.
    pub state: SeatState,
    /// Why it is parked.
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// When it is tried again, in microseconds from now.
    pub retry_in_us: Option<u64>,
    /// Attempts to connect since it was last in service.
    pub attempts: u32,
    /// The last error of its connection.
    pub last_error: Option<String>,
    /// When that was.
    pub last_error_at: Option<Timestamp>,
    /// What its token said of itself when it was last connected.
    pub token: Option<TokenStatus>,
    /// Operations that it runs now.
    pub in_flight: usize,
    /// How many it can run at once.
    pub lanes: usize,
    /// Operations of callers that it has answered; proofs are not counted.
    pub served: u64,
    /// Operations that failed because of the token.
    pub failed: u64,
    /// Moving average of these operations, from the moment that one has a lane of the seat to its
    /// answer: what it waited in the queue is not in it. 0 before the first.
    pub latency_us: u64,
    /// How often its connection was replaced while it served: it was slow, did not see what others had
    /// added, or could do less than its token can by now.
    #[serde(default)]
    pub replaced: u64,
    /// True if it is another host: changes of objects leave it alone.
    #[serde(default)]
    pub remote: bool,
    /// Objects that it holds.
    pub objects: usize,
    /// The number of keys among them that have not proved themselves, so that they do not serve.
    pub unproved: usize,
}

/// What a seat is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeatState {
    /// Being connected.
    Connecting,
    /// Serving.
    InService,
    /// Resting after a failure, to be tried again.
    BackOff,
    /// Not tried again before somebody says so.
    Parked,
    /// Finishing what runs.
    Draining,
    /// Gone.
    Removed,
}

/// What the token of a seat says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenStatus {
    /// label.
    pub label: String,
    /// serialNumber.
    pub serial: String,
    /// manufacturerID.
    pub manufacturer: String,
    /// model.
    pub model: String,
    /// libraryDescription of its module.
    pub library: String,
    /// The CKF_* bits of CK_TOKEN_INFO.
    pub flags: u64,
    /// What its slot is called, if it can leave it: of a card, its reader's name.
    #[serde(default)]
    pub slot: Option<String>,
}

/// An object and its copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// The name in full, in hexadecimal digits.
    pub name: String,
    /// `private key`, `certificate`.
    pub class: String,
    /// CKA_LABEL.
    pub label: String,
    /// CKA_ID, in hexadecimal digits.
    pub id: String,
    /// `CKK_*`, of keys.
    pub key_type: Option<u64>,
    /// True if applications see it.
    pub visible: bool,
    /// Members whose copy serves now.
    pub members: Vec<String>,
    /// All copies.
    pub replicas: Vec<ReplicaStatus>,
}

/// One copy of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// The seat.
    pub seat: String,
    /// The physical token.
    pub member: String,
    /// `serving`, `proving`, `away` or `unproved`.
    pub state: String,
    /// Why it is unproved and, after the last semicolon, what to do.
    pub reason: Option<String>,
    /// True if it serves: also a key that hsmux cannot check, on its one token.
    #[serde(default)]
    pub serves: bool,
}

pub(crate) fn of(core: &Core) -> PoolStatus {
    let catalogue = core.catalogue.load_full();
    let mut objects: Vec<_> = catalogue
        .entries
        .values()
        .map(|entry| object(entry))
        .collect();
    objects.sort_by(|a, b| (&a.label, &a.class, &a.name).cmp(&(&b.label, &b.class, &b.name)));
    let records = core.records();
    let mut seats: Vec<_> = records.iter().map(|record| seat(core, record)).collect();
    for entry in catalogue.entries.values() {
        for replica in &entry.replicas {
            if let Some(at) = records
                .iter()
                .position(|record| record.index == replica.index)
            {
                seats[at].objects += 1;
                seats[at].unproved +=
                    usize::from(matches!(replica.state, ReplicaState::Unproved(_)));
            }
        }
    }
    PoolStatus {
        label: catalogue.info.label.clone(),
        serial: catalogue.info.serial.clone(),
        epoch: catalogue.epoch,
        policy: core.options.policy,
        waiting: core.scheduler.lock().waiting(),
        queue: core.options.queue,
        changes: 0,
        debts: Vec::new(),
        replicas: core.options.replicas,
        read_only: core.options.read_only,
        seats,
        objects,
    }
}

fn seat(core: &Core, record: &Record) -> SeatStatus {
    let activity = core.scheduler.lock().activity(record.index);
    let last_error = record.last_error.lock().clone();
    let life = record.life.lock();
    let mut status = SeatStatus {
        name: record.seat.name.clone(),
        member: record.seat.member.clone(),
        state: SeatState::Connecting,
        reason: None,
        since: life.since.into(),
        retry_in_us: None,
        attempts: life.attempts,
        last_error: last_error.as_ref().map(|(_, error)| error.to_string()),
        last_error_at: last_error.as_ref().map(|(at, _)| (*at).into()),
        token: life.last_seen.as_ref().map(|info| TokenStatus {
            label: info.label.clone(),
            serial: info.serial.clone(),
            manufacturer: info.manufacturer.clone(),
            model: info.model.clone(),
            library: info.library.clone(),
            flags: info.flags.bits(),
            slot: info.slot.clone(),
        }),
        in_flight: activity.as_ref().map_or(0, |activity| activity.running),
        lanes: activity.as_ref().map_or(0, |activity| activity.lanes),
        latency_us: activity.map_or(0, |activity| micros(activity.latency)),
        served: record.served(&life),
        failed: record.failed.load(Ordering::Relaxed),
        replaced: record.replaced.load(Ordering::Relaxed),
        remote: record.seat.connector.remote(),
        objects: 0,
        unproved: 0,
    };
    status.state = match &life.state {
        LifeState::Connecting => SeatState::Connecting,
        LifeState::InService => SeatState::InService,
        LifeState::Draining => SeatState::Draining,
        LifeState::Removed => SeatState::Removed,
        LifeState::BackOff(until) => {
            let left = until.saturating_duration_since(clock::now());
            status.retry_in_us = Some(micros(left));
            SeatState::BackOff
        }
        LifeState::Parked(reason) => {
            status.reason = Some(reason.clone());
            SeatState::Parked
        }
    };
    status
}

fn object(entry: &Entry) -> ObjectStatus {
    let object = &entry.object;
    let key = matches!(
        object.id.class,
        Class::PRIVATE_KEY | Class::PUBLIC_KEY | Class::SECRET_KEY
    );
    ObjectStatus {
        name: hex::encode(object.id.name),
        class: object.id.class.name().into(),
        label: object.attributes.text(ck::CKA_LABEL).unwrap_or_default(),
        id: hex::encode(object.attributes.get(ck::CKA_ID).unwrap_or_default()),
        key_type: key
            .then(|| object.attributes.number(ck::CKA_KEY_TYPE))
            .flatten(),
        visible: entry.visible(),
        members: entry.members().into_iter().map(String::from).collect(),
        replicas: entry.replicas.iter().map(replica).collect(),
    }
}

fn replica(replica: &crate::Replica) -> ReplicaStatus {
    let (state, reason) = match &replica.state {
        ReplicaState::Serving => match replica.unchecked() {
            Some(reason) => ("unproved", Some(reason)),
            None => ("serving", None),
        },
        ReplicaState::Proving => ("proving", None),
        ReplicaState::Away => ("away", None),
        ReplicaState::Unproved(reason) => ("unproved", Some(reason.clone())),
    };
    ReplicaStatus {
        seat: replica.seat.to_string(),
        member: replica.member.to_string(),
        state: state.into(),
        reason,
        serves: replica.state == ReplicaState::Serving,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
