//! How everything is, in the words of people.

use std::path::PathBuf;

use hsmux_module::pin::{Outcome, Record};
use hsmux_pool::{
    HIDDEN_LABEL, ObjectStatus, Pool, PoolStatus, ReplicaStatus, SeatState, SeatStatus, TokenStatus,
};
use hsmux_state::Timestamp;
use serde::{Deserialize, Serialize};

use crate::peers::{HostRefusal, PeerStatus};
use crate::services::ServiceStatus;

/// The daemon, its listeners and its members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// The daemon's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Its configuration file.
    pub config: PathBuf,
    /// Why the file as it is now could not be taken over, if that was tried.
    pub config_error: Option<String>,
    /// Where it listens.
    pub listeners: Vec<ListenerStatus>,
    /// Other hosts that may use this one's tokens.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// Connections of other hosts that were refused, the last few.
    #[serde(default)]
    pub refused: Vec<HostRefusal>,
    /// Services that are processes of their own.
    #[serde(default)]
    pub services: Vec<ServiceStatus>,
    /// In the order of the configuration.
    pub members: Vec<MemberStatus>,
    /// The audit trail.
    pub audit: hsmux_audit::TrailStatus,
    /// The pool in detail.
    pub pool: PoolStatus,
}

/// A listener.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its socket.
    pub socket: PathBuf,
    /// True if it refuses to change tokens.
    pub read_only: bool,
    /// Whether C_Login needs the pool's PIN.
    pub pin_login: bool,
    /// Open connections.
    pub connections: usize,
    /// Applications behind them.
    pub applications: usize,
}

/// A member: a token with all its workers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// `serving`, `connecting`, `resting` (to be tried again), `parked`, `draining`, `removed`.
    pub state: String,
    /// Why, where it does not serve, or what is wrong though it does.
    pub reason: Option<String>,
    /// What the token said of itself when it was last connected.
    pub token: Option<TokenStatus>,
    /// The process id of its first worker.
    pub pid: Option<u32>,
    /// The process ids of all its workers.
    pub pids: Vec<u32>,
    /// Its workers, or other seats.
    pub seats: usize,
    /// How many of them serve.
    pub in_service: usize,
    /// Operations that run now.
    pub in_flight: usize,
    /// Operations of callers that it has answered; proofs are not counted.
    pub served: u64,
    /// Operations that failed because of the token.
    pub failed: u64,
    /// Moving average of one operation on the token, in microseconds, without its wait in the queue:
    /// over the workers by how much each has answered. 0 before the first.
    pub latency_us: u64,
    /// How often one of its workers was replaced while it served: it was slow, or did not see what others
    /// had added.
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

/// An object with its replicas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyRow {
    /// The URI that means it: label, id and class.
    pub uri: String,
    /// CKA_EXTRACTABLE, of private and secret keys that say so.
    pub extractable: Option<bool>,
    /// Members in service that do not hold it and could.
    pub missing: Vec<String>,
    /// Hints about an object that was just made, which an administrator may not expect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The object itself.
    #[serde(flatten)]
    pub object: ObjectStatus,
}

/// What is on record about the PINs of one token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PinRow {
    /// The token's label when it was last seen.
    pub label: String,
    /// Its serial number.
    pub serial: String,
    /// `Succeeded`, `Refused`, `Held`, ...: of the version that was used last.
    pub outcome: String,
    /// True if it is not tried by itself any more.
    pub held: bool,
    /// When that was written.
    pub time: Timestamp,
}

impl PinRow {
    /// The newest version of each record.
    pub fn of(record: &Record) -> Option<Self> {
        let newest = record.pins.last()?;
        Some(Self {
            label: record.label.clone(),
            serial: record.serial.clone(),
            outcome: match newest.outcome {
                Outcome::Attempting | Outcome::Retrying => {
                    "a login was begun and its outcome is unknown"
                }
                Outcome::Unknown => "the token did not say whether it is right",
                Outcome::Refused => "refused by the token",
                Outcome::Succeeded => "right",
                Outcome::Held => "not tried, for the token's counter is low",
                Outcome::Released => "released to be tried once more",
                Outcome::Setting => "being set",
            }
            .into(),
            held: newest.is_held(),
            time: newest.time.into(),
        })
    }
}

/// The members of a pool, in the order of its seats.
pub fn members(pool: &Pool, status: &PoolStatus) -> Vec<MemberStatus> {
    let mut members: Vec<MemberStatus> = Vec::new();
    for seat in &status.seats {
        let at = members.iter().position(|member| member.name == seat.member);
        let at = at.unwrap_or_else(|| {
            members.push(MemberStatus::new(&seat.member));
            members.len() - 1
        });
        members[at].add(seat, pool);
    }
    for member in &mut members {
        member.latency_us = latency(status, &member.name);
        member.note_unproved(status);
    }
    members
}

/// A worker that was slow once, and has done nothing since, must not speak for the others.
fn latency(status: &PoolStatus, member: &str) -> u64 {
    let measured = |seat: &&SeatStatus| seat.member == member && seat.latency_us > 0;
    let seats = || status.seats.iter().filter(measured);
    let sum: u128 = seats()
        .map(|seat| u128::from(seat.latency_us) * u128::from(seat.served))
        .sum();
    let served: u128 = seats().map(|seat| u128::from(seat.served)).sum();
    u64::try_from(sum / served.max(1)).unwrap_or(u64::MAX)
}

impl MemberStatus {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: String::new(),
            reason: None,
            token: None,
            pid: None,
            pids: Vec::new(),
            seats: 0,
            in_service: 0,
            in_flight: 0,
            served: 0,
            failed: 0,
            latency_us: 0,
            replaced: 0,
            remote: false,
            objects: 0,
            unproved: 0,
        }
    }

    fn add(&mut self, seat: &SeatStatus, pool: &Pool) {
        let serves = seat.state == SeatState::InService;
        if serves || self.in_service == 0 {
            state(seat.state).clone_into(&mut self.state);
        }
        if !serves {
            self.reason = why(seat);
        }
        self.pids.extend(
            pool.member(&seat.name)
                .ok()
                .and_then(|token| token.process()),
        );
        self.pid = self.pids.first().copied();
        self.token = self.token.take().or_else(|| seat.token.clone());
        self.seats += 1;
        self.in_service += usize::from(serves);
        self.in_flight += seat.in_flight;
        self.served += seat.served;
        self.failed += seat.failed;
        self.replaced += seat.replaced;
        self.remote = seat.remote;
        self.objects = self.objects.max(seat.objects);
    }

    /// A member that serves says which of its keys do not. hsmux's own never do.
    fn note_unproved(&mut self, status: &PoolStatus) {
        let shown = |object: &&ObjectStatus| !object.label.starts_with(HIDDEN_LABEL);
        let mut first = None;
        for object in status.objects.iter().filter(shown) {
            let of_member = |replica: &&ReplicaStatus| replica.member == self.name;
            let replicas = object.replicas.iter().filter(of_member);
            let mut idle = replicas.filter(|replica| !replica.serves);
            let Some(reason) = idle.find_map(|replica| replica.reason.as_ref()) else {
                continue;
            };
            self.unproved += 1;
            first.get_or_insert_with(|| format!("{} {:?}: {reason}", object.class, object.label));
        }
        let more = match self.unproved {
            0 | 1 => String::new(),
            keys => format!(" ({keys} keys do not serve from it; hsmux key list says why)"),
        };
        self.reason = self.reason.take().or(first.map(|first| first + &more));
    }
}

/// Why a seat does not serve, without its name, which is said beside it.
pub fn why(seat: &SeatStatus) -> Option<String> {
    let why = seat.reason.as_ref().or(seat.last_error.as_ref())?;
    let names = [&seat.name, &seat.member];
    let rest = names.into_iter().fold(why.as_str(), |why, name| {
        let after = why.strip_prefix(name.as_str());
        after.and_then(|why| why.strip_prefix(": ")).unwrap_or(why)
    });
    Some(rest.to_owned())
}

fn state(state: SeatState) -> &'static str {
    match state {
        SeatState::Connecting => "connecting",
        SeatState::InService => "serving",
        SeatState::BackOff => "resting",
        SeatState::Parked => "parked",
        SeatState::Draining => "draining",
        SeatState::Removed => "removed",
    }
}
