//! One seat as the running pool knows it: its connection, its health, its counters.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hsmux_token::{Error, ObjectId, Token, TokenInfo};

use crate::Seat;
use crate::clock::{self, Mutex};
use crate::registry::Holder;

/// A seat and what has become of it.
pub(crate) struct Record {
    pub index: usize,
    pub seat: Seat,
    pub name: Arc<str>,
    pub member: Arc<str>,
    pub life: Mutex<Life>,
    /// The last error of its connection. Locked by itself: it is asked for where lives are locked.
    pub last_error: Mutex<Option<(SystemTime, Error)>>,
    /// The time at which it is expected in service, see [`Record::expect`].
    expected: AtomicU64,
    pub served: AtomicU64,
    pub failed: AtomicU64,
    /// Connections that were replaced while they served.
    pub replaced: AtomicU64,
    /// Keys whose proof failed for another reason than the key.
    pub retry: Mutex<Retry>,
    /// When a suspicion was last followed up.
    pub suspected: Mutex<Option<Instant>>,
}

/// Proofs that are to be tried again on the same connection.
#[derive(Default)]
pub(crate) struct Retry {
    pub at: Option<Instant>,
    pub ids: Vec<ObjectId>,
    pub attempts: u32,
}

/// Where a seat stands.
pub(crate) struct Life {
    pub state: LifeState,
    pub since: SystemTime,
    /// Attempts to connect since it was last in service.
    pub attempts: u32,
    pub connection: Option<Arc<SeatConnection>>,
    /// What its token said of itself when it was last connected.
    pub last_seen: Option<Arc<TokenInfo>>,
    /// Grows with each change of state, so that a slow attempt to connect sees that it is no longer wanted.
    pub turn: u64,
}

/// The states of a seat.
#[derive(Clone, Debug)]
pub(crate) enum LifeState {
    Connecting,
    InService,
    /// Tried again then.
    BackOff(Instant),
    /// Not tried again before somebody says so: why.
    Parked(String),
    /// Finishes what runs, then leaves.
    Draining,
    Removed,
}

/// One connection of a seat, from its login to its end.
pub(crate) struct SeatConnection {
    pub record: Arc<Record>,
    /// Never used twice; the low byte is the seat's index.
    pub generation: u64,
    pub token: Arc<dyn Token>,
    pub info: Arc<TokenInfo>,
    /// Keys with use counters that were proved on it because a person asked.
    pub by_hand: Mutex<HashSet<ObjectId>>,
}

const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);
const NEVER: u64 = u64::MAX;

impl Record {
    pub fn new(index: usize, seat: Seat) -> Arc<Self> {
        Arc::new(Self {
            index,
            name: seat.name.as_str().into(),
            member: seat.member.as_str().into(),
            seat,
            life: Mutex::new(Life {
                state: LifeState::Connecting,
                since: clock::wall(),
                attempts: 0,
                connection: None,
                last_seen: None,
                turn: 0,
            }),
            last_error: Mutex::default(),
            expected: AtomicU64::new(0),
            served: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            retry: Mutex::default(),
            suspected: Mutex::new(None),
        })
    }

    /// True if `name` is the seat's own, or its member's.
    pub fn is_named(&self, name: &str) -> bool {
        *self.member == *name || *self.name == *name
    }

    /// Operations of callers that it has answered, directly too.
    pub fn served(&self, life: &Life) -> u64 {
        let current = life.connection.as_ref();
        let direct = current.map_or(0, |current| current.token.served_directly());
        self.served.load(Ordering::Relaxed) + direct
    }

    /// Something was wrong with its connection.
    pub fn note(&self, error: &Error) {
        *self.last_error.lock() = Some((clock::wall(), error.clone()));
    }

    /// Says when the seat is expected in service, in nanoseconds after the pool's start; 0 for any
    /// moment, `None` for never.
    pub fn expect(&self, at: Option<u64>) {
        self.expected.store(at.unwrap_or(NEVER), Ordering::Release);
    }

    /// True if the seat may be in service before this moment.
    pub fn expected_by(&self, deadline: Instant, base: Instant) -> bool {
        let at = self.expected.load(Ordering::Acquire);
        at != NEVER && base + Duration::from_nanos(at) < deadline
    }

    /// Moves to another state, whose life is held by the caller.
    pub fn enter(&self, life: &mut Life, state: LifeState, base: Instant) {
        self.expect(match &state {
            LifeState::Connecting | LifeState::InService => Some(0),
            LifeState::BackOff(until) => {
                Some(until.saturating_duration_since(base).as_nanos() as u64)
            }
            LifeState::Parked(_) | LifeState::Draining | LifeState::Removed => None,
        });
        if !matches!(state, LifeState::InService | LifeState::Draining) {
            life.connection = None;
        }
        life.state = state;
        life.since = clock::wall();
        life.turn += 1;
    }
}

impl Drop for SeatConnection {
    fn drop(&mut self) {
        let direct = self.token.served_directly();
        self.record.served.fetch_add(direct, Ordering::Relaxed);
    }
}

impl SeatConnection {
    pub fn new(record: Arc<Record>, generation: u64, token: Arc<dyn Token>) -> Self {
        Self {
            record,
            generation,
            info: token.info(),
            token,
            by_hand: Mutex::default(),
        }
    }

    /// True if it is still the one that its seat serves by.
    pub fn is_current(&self) -> bool {
        self.record.life.lock().is_by(self)
    }

    /// True if another connection is of the same token: what one of them holds the other does, too.
    pub fn shares_token_with(&self, other: &Self) -> bool {
        self.record.member == other.record.member && self.info.serial == other.info.serial
    }

    /// True if another one serves in its seat, and it was connected later: to take over, perhaps.
    pub fn comes_after_the_current(&self) -> bool {
        let life = self.record.life.lock();
        let current = life.connection.as_ref();
        current.is_some_and(|current| current.generation < self.generation)
    }

    /// The seat as the registry is to know it.
    pub fn holder(&self) -> Holder {
        Holder {
            seat: Arc::clone(&self.record.name),
            member: Arc::clone(&self.record.member),
            info: Arc::clone(&self.info),
            generation: self.generation,
        }
    }
}

impl Life {
    fn is_by(&self, connection: &SeatConnection) -> bool {
        let current = self.connection.as_ref();
        current.is_some_and(|current| current.generation == connection.generation)
    }

    /// True if the seat is in service by this connection.
    pub fn serves_by(&self, connection: &SeatConnection) -> bool {
        matches!(self.state, LifeState::InService) && self.is_by(connection)
    }

    /// When the seat is tried again after so many attempts.
    pub fn next_attempt(&self) -> Instant {
        clock::now() + back_off(self.attempts)
    }
}

/// How long to rest after so many attempts: doubling, with a quarter of jitter so that the workers
/// of one token do not all come back at once.
pub(crate) fn back_off(attempts: u32) -> Duration {
    let doubled = FIRST_BACK_OFF * 2_u32.saturating_pow(attempts.min(16));
    let mut byte = [0];
    // Without randomness the rest is not spread, which is no reason to fail.
    let _ = clock::random(&mut byte);
    let rest = doubled.min(LONGEST_BACK_OFF);
    rest.mul_f64(0.75 + f64::from(byte[0]) / 1024.0)
}
