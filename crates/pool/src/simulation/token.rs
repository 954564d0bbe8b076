//! Tokens that fail in every way: their connections, and what runs there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{
    Batch, Done, Error, Kind, Made, MechanismInfo, ObjectChanges, ObjectRef, Operation,
    OperationKind, OperationPace, Outcome, Request, Result, SessionObject, Snapshot, Token,
    TokenFlags, TokenInfo, Verb, ck,
};

use super::keys;
use super::world::{World, WorldState};
use crate::clock::{self, Monitor};
use crate::{Care, Connector, Seat};

/// A physical token.
pub(super) struct TokenModel {
    pub member: String,
    pub seats: usize,
    pub lanes: u32,
    /// It has more lanes than when it was connected.
    pub has_grown: bool,
    /// Another number is another token.
    pub serial: u64,
    /// The keys that it holds.
    pub keys: BTreeSet<usize>,
    /// Its keys were changed by others. Its connections may not know.
    pub is_changed: bool,
    /// Those of them that are other keys than they seem. Workers of one token hold the same keys, so a connection sees
    /// it if the pool has no other one.
    pub false_keys: BTreeSet<usize>,
    /// Those of the connections that are there.
    pub false_now: BTreeSet<usize>,
    pub refusal: Refusal,
    /// How long it takes to connect at most.
    pub slowness: Duration,
    /// The breaker holds the PIN until an administrator resumes the member.
    pub is_pin_held: bool,
    /// Seats whose last attempt was refused for the PIN.
    pub refused: BTreeSet<String>,
    /// How many commands resume the member now. A refusal may come before they take effect.
    pub resuming: usize,
    /// Keys that a connection has proved while all have been of the same token.
    pub proved: BTreeSet<usize>,
}

/// How a token answers to an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    None,
    Failure,
    Pin,
}

/// What the pool uses a connection for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPurpose {
    Serve,
    /// To see what others have changed.
    Look,
}

/// One connection to a token.
pub(super) struct ConnectionModel {
    pub token: usize,
    pub seat: String,
    pub purpose: ConnectionPurpose,
    /// It sees only the keys that it has read.
    pub is_blind: bool,
    /// The keys that it has read.
    pub held: BTreeSet<usize>,
    /// How long its operations take.
    pub pace: Duration,
    /// The operations that it has answered.
    pub count: u64,
    pub serial: u64,
    pub lanes: u32,
    pub false_keys: BTreeSet<usize>,
    /// Keys that have answered a challenge here.
    pub proved: BTreeSet<usize>,
    pub is_hung: bool,
    pub ended: Option<Error>,
    /// The pool no longer serves by it.
    pub is_closed: bool,
    pub lost: Option<Box<dyn FnOnce(Error) + Send>>,
    /// Session objects that were made here. Those that are left are true.
    pub session_objects: BTreeMap<u64, bool>,
}

/// An operation that a token was given.
pub(super) struct RunningOperation {
    pub connection: u64,
    /// The client's request; 0 for the pool's own.
    pub request: u64,
    pub operation: Operation,
    pub deadline: Instant,
    pub done: Done,
}

/// Connects one seat.
pub(super) struct SimulatedConnector {
    pub world: Arc<World>,
    pub token: usize,
    pub seat: String,
}

/// The pool's end of a connection.
pub(super) struct SimulatedToken {
    pub world: Arc<World>,
    pub connection: u64,
    pub info: Arc<TokenInfo>,
}

const MECHANISMS: [u64; 3] = [ck::CKM_RSA_PKCS, ck::CKM_AES_KEY_GEN, ck::CKM_AES_ECB];

impl TokenModel {
    pub fn info(&self) -> Arc<TokenInfo> {
        Arc::new(TokenInfo {
            label: self.member.clone(),
            serial: format!("{}/{}", self.member, self.serial),
            flags: TokenFlags::RNG,
            lanes: self.lanes,
            mechanisms: MECHANISMS
                .map(|kind| MechanismInfo {
                    kind,
                    min_key: 0,
                    max_key: 4096,
                    flags: 0,
                })
                .to_vec(),
            ..TokenInfo::default()
        })
    }

    /// Why it refuses an attempt to connect.
    pub fn refuse(&mut self) -> Option<Error> {
        if self.is_pin_held {
            return Some(Error::token(Kind::PinHeld, "the breaker holds the PIN"));
        }
        match self.refusal {
            Refusal::None => None,
            Refusal::Failure => Some(Error::vendor("C_OpenSession", ck::CKR_TOKEN_NOT_PRESENT)),
            Refusal::Pin => {
                self.is_pin_held = true;
                Some(Error::vendor("C_Login", ck::CKR_PIN_INCORRECT))
            }
        }
    }

    /// What a seat of it is named: the first as its member.
    pub fn seat_name(&self, number: usize) -> String {
        match number {
            0 => self.member.clone(),
            _ => format!("{}#{}", self.member, number + 1),
        }
    }
}

/// The seats of a token.
pub(super) fn seats(world: &Arc<World>, token: usize) -> Vec<Seat> {
    let state = world.state();
    let model = &state.tokens[token];
    let seat = |number| {
        let name = model.seat_name(number);
        Seat {
            name: name.clone(),
            member: model.member.clone(),
            weight: 1 + token as u32 % 2,
            timeout: world.plan.timeout,
            connector: Arc::new(SimulatedConnector {
                world: Arc::clone(world),
                token,
                seat: name,
            }),
        }
    };
    (0..model.seats).map(seat).collect()
}

impl Connector for SimulatedConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let turn = self.world.attempt(self.token, &self.seat);
        let slowness = self.world.state().tokens[self.token].slowness;
        self.world.pause(slowness);
        let token = self.world.connect(self.token, &self.seat, turn)?;
        Ok(Arc::new(token))
    }

    fn care(&self) -> Care {
        let is_watched = self.world.plan.tokens[self.token].is_watched;
        Care {
            look: is_watched,
            replace: is_watched,
            cards: false,
        }
    }

    fn outgrown(&self) -> Result<bool> {
        Ok(self.world.state().tokens[self.token].has_grown)
    }

    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        let slowness = self.world.state().tokens[self.token].slowness;
        self.world.pause(slowness);
        let token = self.world.connect_probe(self.token)?;
        Ok(Arc::new(token))
    }
}

impl Token for SimulatedToken {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let (_, keys) = self.world.state().read(self.connection)?;
        // Others may change it between the reading and the answer.
        self.world.pause(Duration::from_micros(50));
        if let Some(error) = &self.world.state().connections[&self.connection].ended {
            return Err(error.clone());
        }
        let objects = keys.iter().map(|key| keys::objects()[*key].clone());
        Ok(Arc::new(Snapshot {
            is_partial: false,
            epoch: 1,
            objects: objects.collect(),
        }))
    }

    fn look(&self) -> Result<ObjectChanges> {
        let mut state = self.world.state();
        let (before, now) = state.read(self.connection)?;
        drop(state);
        // Others may change it between the look and the answer.
        self.world.pause(Duration::from_micros(50));
        let object = |key: &usize| keys::objects()[*key].clone();
        Ok(ObjectChanges {
            made: now.difference(&before).map(object).collect(),
            gone: before.difference(&now).map(|key| object(key).id).collect(),
            is_partial: false,
        })
    }

    fn pace(&self) -> Vec<OperationPace> {
        let state = self.world.state();
        let connection = &state.connections[&self.connection];
        vec![OperationPace {
            work: OperationKind::new(Verb::Sign, ck::CKM_RSA_PKCS, 32, 64),
            key: keys::id(0),
            nanos: connection.pace.as_nanos() as u64,
            count: connection.count,
        }]
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            if let Err((done, error)) = self.world.begin(self.connection, request) {
                done.complete(Err(error));
            }
        }
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let answer = Arc::new(Monitor::new(None));
        let told = Arc::clone(&answer);
        self.submit(Batch::from_buf([Request {
            behalf: None,
            operation: operation.clone(),
            deadline,
            done: Done::new(move |result| {
                *told.lock() = Some(result);
                told.notify_all();
            }),
        }]));
        let mut result = answer.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            let is_late;
            (result, is_late) = answer.wait_until(result, deadline);
            if is_late && result.is_none() {
                return Err(Error::token(Kind::Deadline, "the token has not answered"));
            }
        }
    }

    fn on_lost(&self, lost: Box<dyn FnOnce(Error) + Send>) {
        let mut state = self.world.state();
        let Some(connection) = state.connections.get_mut(&self.connection) else {
            return;
        };
        match connection.ended.clone() {
            Some(error) => {
                drop(state);
                lost(error);
            }
            None => connection.lost = Some(lost),
        }
    }

    fn abort(&self, reason: &str) {
        self.world.end(self.connection, Error::lost(reason));
        self.world.close(self.connection);
    }
}

impl WorldState {
    /// A connection reads the token's keys. Answers with what it has read before, and with what is there.
    fn read(&mut self, connection: u64) -> Result<(BTreeSet<usize>, BTreeSet<usize>)> {
        let connection = self.connections.get_mut(&connection).expect("it is open");
        if let Some(error) = &connection.ended {
            return Err(error.clone());
        }
        if connection.is_blind {
            return Ok((connection.held.clone(), connection.held.clone()));
        }
        let now = self.tokens[connection.token].keys.clone();
        Ok((std::mem::replace(&mut connection.held, now.clone()), now))
    }
}

impl Drop for SimulatedToken {
    fn drop(&mut self) {
        self.world.forget(self.connection);
    }
}

impl ConnectionModel {
    pub fn new(model: &TokenModel, token: usize, seat: &str) -> Self {
        Self {
            token,
            seat: seat.into(),
            purpose: ConnectionPurpose::Serve,
            is_blind: false,
            held: BTreeSet::new(),
            pace: Duration::from_micros(20),
            count: 0,
            serial: model.serial,
            lanes: model.lanes,
            false_keys: model.false_now.clone(),
            proved: BTreeSet::new(),
            is_hung: false,
            ended: None,
            is_closed: false,
            lost: None,
            session_objects: BTreeMap::new(),
        }
    }

    /// The answer of a token that works. `None` for an object that it does not have.
    pub fn answer(
        &mut self,
        keys_now: &BTreeSet<usize>,
        operation: &Operation,
        fresh: u64,
    ) -> Option<Outcome> {
        let bytes = |bytes: Vec<u8>| Outcome::Bytes(bytes.into());
        Some(match operation {
            Operation::Use {
                verb, key, data, ..
            } => match key {
                ObjectRef::Token(id) => {
                    let held = if self.is_blind { &self.held } else { keys_now };
                    let number = keys::number(id).filter(|number| held.contains(number))?;
                    let mut answer = keys::answer(number, *verb, data);
                    if self.false_keys.contains(&number) {
                        let last = answer.len() - 1;
                        answer[last] ^= 1;
                    } else {
                        self.proved.insert(number);
                    }
                    bytes(answer)
                }
                ObjectRef::Session(object) => {
                    let has = self.session_objects.get(&object.handle) == Some(&true);
                    return has.then(|| bytes(data.to_vec()));
                }
            },
            Operation::Generate { .. } => {
                self.session_objects.insert(fresh, true);
                let session = SessionObject {
                    owner: 0,
                    handle: fresh,
                };
                Outcome::Objects(vec![Made {
                    session: Some(session),
                    object: keys::objects()[keys::SECRET].clone(),
                }])
            }
            Operation::Destroy {
                object: ObjectRef::Session(object),
            } => {
                let had = self.session_objects.insert(object.handle, false);
                return (had == Some(true)).then_some(Outcome::Done);
            }
            _ => bytes(vec![1; 8]),
        })
    }
}

/// Connections by their number.
pub(super) type Connections = BTreeMap<u64, ConnectionModel>;

/// Lets time pass and others run.
impl World {
    pub fn pause(&self, longest: Duration) {
        let longest = longest.as_nanos() as u64 + 1;
        let time = self.executor.random(|random| {
            let share = 1 + random.below(8);
            longest >> (share - 1)
        });
        let time = self.executor.random(|random| random.below(time.max(1)));
        clock::sleep(Duration::from_nanos(time));
    }
}
