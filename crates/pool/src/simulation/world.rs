//! What surrounds the pool: tokens with their connections, and the requests of clients.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use hsmux_token::{
    Done, Error, Kind, ObjectRef, Operation, Outcome, Request, Result, TokenInfo, ck,
};

use super::executor::Executor;
use super::keys;
use super::plan::{SimulationPlan, TokenPlan};
use super::requests::SimulatedRequests;
use super::token::{
    ConnectionModel, ConnectionPurpose, Connections, RunningOperation, SimulatedToken, TokenModel,
};
use crate::Pool;
use crate::record::LifeState;

pub(super) struct World {
    pub executor: Arc<Executor>,
    pub plan: SimulationPlan,
    pub pool: OnceLock<Weak<Pool>>,
    state: Mutex<WorldState>,
}

#[derive(Default)]
pub(super) struct WorldState {
    pub tokens: Vec<TokenModel>,
    pub connections: Connections,
    pub running: Vec<RunningOperation>,
    /// Connections whose end was not yet told.
    pub losses: Vec<u64>,
    pub requests: SimulatedRequests,
    /// No more faults.
    pub is_healed: bool,
    numbers: u64,
}

impl WorldState {
    /// True if no connection serves by a token.
    fn serves_nobody(&self, token: usize) -> bool {
        let mut all = self.connections.values();
        all.all(|other| {
            other.token != token || other.is_closed || other.purpose == ConnectionPurpose::Look
        })
    }
}

impl World {
    pub fn new(executor: Arc<Executor>, plan: SimulationPlan) -> Arc<Self> {
        let tokens = plan.tokens.iter().map(TokenPlan::model).collect();
        Arc::new(Self {
            executor,
            plan,
            pool: OnceLock::new(),
            state: Mutex::new(WorldState {
                tokens,
                ..WorldState::default()
            }),
        })
    }

    /// Not to be held while the pool is called.
    pub fn state(&self) -> MutexGuard<'_, WorldState> {
        self.state.lock().expect("nothing panics with it")
    }

    pub fn now(&self) -> Instant {
        self.executor.now()
    }

    /// A seat is about to connect. Invariant 5. Answers by what the attempt is known to the pool.
    pub fn attempt(&self, token: usize, seat: &str) -> Option<u64> {
        let turn = self.turn(seat);
        // The seat of a connection that a watcher is about to replace may be refused meanwhile: the breaker holds the PIN.
        let is_watcher = self.executor.is_task("hsmux-watch-");
        if !is_watcher && self.state().tokens[token].refused.contains(seat) {
            let why = format!("invariant 5: {seat} is tried again, and its PIN was refused");
            self.executor.fail(why);
        }
        turn
    }

    /// The turn of a seat that connects.
    fn turn(&self, seat: &str) -> Option<u64> {
        let pool = self.pool.get()?.upgrade()?;
        let records = pool.core.records();
        let record = records.iter().find(|record| *record.name == *seat)?;
        let life = record.life.lock();
        matches!(life.state, LifeState::Connecting).then_some(life.turn)
    }

    /// A login.
    pub fn connect(
        self: &Arc<Self>,
        token: usize,
        seat: &str,
        turn: Option<u64>,
    ) -> Result<SimulatedToken> {
        // The pool does not hear of the outcome if another attempt has begun, or is about to.
        let is_heard = self.executor.count(Some(&format!("hsmux-{seat}"))) < 2
            && turn.is_some()
            && self.turn(seat) == turn;
        let mut state = self.state();
        let is_first = state.serves_nobody(token);
        let model = &mut state.tokens[token];
        if is_first {
            model.false_now = model.false_keys.clone();
        }
        if let Some(error) = model.refuse() {
            if model.is_pin_held && is_heard && model.resuming == 0 {
                model.refused.insert(seat.into());
            }
            return Err(error);
        }
        model.has_grown = false;
        let info = model.info();
        let connection = ConnectionModel::new(model, token, seat);
        drop(state);
        Ok(self.open(connection, info))
    }

    /// A login beside the connections that serve.
    pub fn connect_probe(self: &Arc<Self>, token: usize) -> Result<SimulatedToken> {
        let mut state = self.state();
        let model = &mut state.tokens[token];
        if let Some(error) = model.refuse() {
            return Err(error);
        }
        let info = model.info();
        let connection = ConnectionModel {
            purpose: ConnectionPurpose::Look,
            ..ConnectionModel::new(model, token, "a probe")
        };
        drop(state);
        Ok(self.open(connection, info))
    }

    fn open(self: &Arc<Self>, connection: ConnectionModel, info: Arc<TokenInfo>) -> SimulatedToken {
        let number = self.number();
        self.executor
            .tell(|| format!("{} connects: {number}", connection.seat));
        self.state().connections.insert(number, connection);
        SimulatedToken {
            world: Arc::clone(self),
            connection: number,
            info,
        }
    }

    /// A number that was not used yet.
    pub fn number(&self) -> u64 {
        let mut state = self.state();
        state.numbers += 1;
        state.numbers
    }

    /// A token is given an operation.
    pub fn begin(&self, connection: u64, request: Request) -> Result<(), (Done, Error)> {
        let mut state = self.state();
        let WorldState {
            tokens,
            connections,
            running,
            requests,
            ..
        } = &mut *state;
        let model = &connections[&connection];
        if let Some(error) = &model.ended {
            return Err((request.done, error.clone()));
        }
        let number = request.behalf.map_or(0, |behalf| behalf.request);
        // The pool gives up a proof at its deadline, and the lane with it.
        let now = self.executor.now();
        let at_work = running
            .iter()
            .filter(|run| run.connection == connection && run.deadline > now);
        if at_work.count() >= model.lanes as usize {
            self.executor
                .fail(format!("{} is given more than its lanes", model.seat));
        }
        if number > 0 {
            requests.begins(number, &model.seat, connection, now, &self.executor);
            self.check_objects(&tokens[model.token], model, connection, &request.operation);
        }
        self.executor.tell(|| {
            format!(
                "{connection} is given {number} {:?}",
                request.operation.objects().next()
            )
        });
        running.push(RunningOperation {
            connection,
            request: number,
            operation: request.operation,
            deadline: request.deadline,
            done: request.done,
        });
        Ok(())
    }

    /// Invariant 1: a key serves where it has answered a challenge. Session objects serve where they are.
    fn check_objects(
        &self,
        token: &TokenModel,
        model: &ConnectionModel,
        connection: u64,
        operation: &Operation,
    ) {
        for object in operation.objects() {
            let why = match object {
                ObjectRef::Token(id) => {
                    let number = keys::number(id).unwrap_or(usize::MAX);
                    let by_another = token.serial == model.serial && token.proved.contains(&number);
                    if model.proved.contains(&number) || by_another || number == keys::SECRET {
                        continue;
                    }
                    format!(
                        "invariant 1: key {number} serves on connection {connection} of {} without a proof",
                        model.seat
                    )
                }
                ObjectRef::Session(object) => {
                    if object.owner == 0 && model.session_objects.contains_key(&object.handle) {
                        continue;
                    }
                    format!(
                        "{} is given a session object of another connection",
                        model.seat
                    )
                }
            };
            self.executor.fail(why);
        }
    }

    /// One of the operations that run is answered: as by a token that works or, `with_faults`, in another way.
    /// The pool is told by what is returned.
    pub fn answer_one(&self, with_faults: bool) -> Option<Box<dyn FnOnce() + Send>> {
        let fresh = self.number();
        let mut state = self.state();
        let WorldState {
            tokens,
            connections,
            running,
            requests,
            ..
        } = &mut *state;
        let answers = |run: &RunningOperation| !connections[&run.connection].is_hung;
        let able: Vec<_> = (0..running.len())
            .filter(|at| answers(&running[*at]))
            .collect();
        if able.is_empty() {
            return None;
        }
        let (at, fault) = self.executor.random(|random| {
            let at = *random.pick(&able);
            let is_wrong = with_faults && random.one_in(self.plan.failures);
            (at, is_wrong.then(|| random.number()))
        });
        let run = running.swap_remove(at);
        self.executor.trace(run.connection << 32 | run.request);
        let model = connections.get_mut(&run.connection)?;
        model.count += 1;
        let token = &mut tokens[model.token];
        let call = run.operation.call();
        let result = if let Some(error) = &model.ended {
            Err(error.clone())
        } else if let Some(fault) = fault {
            // A proof would take the last one for an answer.
            let codes = &CODES[..CODES.len() - usize::from(run.request == 0)];
            Err(Error::vendor(
                call,
                codes[(fault % codes.len() as u64) as usize],
            ))
        } else {
            let answer = model.answer(&token.keys, &run.operation, fresh);
            if token.serial == model.serial {
                token.proved.extend(&model.proved);
            }
            answer.ok_or_else(|| {
                Error::request(Kind::UnknownObject, format!("{call}: no such object"))
            })
        };
        self.executor
            .tell(|| format!("{} answers {}: {result:?}", run.connection, run.request));
        let began = !matches!(&result, Err(error) if error.kind() == Kind::UnknownObject);
        if !began {
            requests.did_not_begin(run.request);
        }
        Some(Box::new(move || run.done.complete(result)))
    }

    /// A connection ends. Its operations are answered later.
    pub fn end(&self, connection: u64, error: Error) {
        let mut state = self.state();
        let Some(model) = state.connections.get_mut(&connection) else {
            return;
        };
        if model.ended.is_some() {
            return;
        }
        self.executor.tell(|| format!("{connection} ends: {error}"));
        model.ended = Some(error);
        model.is_hung = false;
    }

    /// The pool has ended a connection, or knows that it has ended.
    pub fn close(&self, connection: u64) {
        let mut state = self.state();
        let Some(model) = state.connections.get_mut(&connection) else {
            return;
        };
        self.executor.tell(|| format!("closed: {connection}"));
        model.is_closed = true;
        let token = model.token;
        if state.serves_nobody(token) {
            state.tokens[token].proved.clear();
        }
    }

    /// The same by itself: the pool is told later.
    pub fn lose(&self, connection: u64) {
        self.end(connection, Error::lost("the connection has ended"));
        self.state().losses.push(connection);
    }

    /// Tells the pool of the end of a connection.
    pub fn tell_loss(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut state = self.state();
        let count = state.losses.len() as u64;
        if count == 0 {
            return None;
        }
        let at = self.executor.random(|random| random.below(count)) as usize;
        let connection = state.losses.swap_remove(at);
        let model = state.connections.get_mut(&connection)?;
        let error = model.ended.clone()?;
        let lost = model.lost.take()?;
        drop(state);
        self.close(connection);
        Some(Box::new(move || lost(error)))
    }

    /// The pool no longer refers to a connection.
    pub fn forget(&self, connection: u64) {
        self.end(connection, Error::lost("the connection was closed"));
        self.close(connection);
        let mut state = self.state();
        let (over, running): (Vec<_>, Vec<_>) = std::mem::take(&mut state.running)
            .into_iter()
            .partition(|run| run.connection == connection);
        state.running = running;
        state.connections.remove(&connection);
        drop(state);
        for run in over {
            run.done
                .complete(Err(Error::lost("the connection was closed")));
        }
    }

    /// An answer of the pool. Invariant 2, and whether the answer is right.
    pub fn answered(&self, request: u64, result: &Result<Outcome>) {
        let now = self.now();
        let mut state = self.state();
        let claim = state
            .requests
            .answered(request, result, now, &self.executor);
        drop(state);
        // It takes locks of the pool.
        drop(claim);
    }

    /// Alive connections of a token.
    pub fn alive(&self, token: usize) -> Vec<u64> {
        let state = self.state();
        let of_token = state
            .connections
            .iter()
            .filter(|(_, model)| model.token == token && model.ended.is_none());
        of_token.map(|(number, _)| *number).collect()
    }
}

/// What a token says that fails.
const CODES: [u64; 7] = [
    ck::CKR_FUNCTION_FAILED,
    ck::CKR_GENERAL_ERROR,
    ck::CKR_DEVICE_MEMORY,
    ck::CKR_DEVICE_ERROR,
    ck::CKR_DEVICE_REMOVED,
    ck::CKR_SESSION_HANDLE_INVALID,
    ck::CKR_DATA_LEN_RANGE,
];

/// Behind a deadline, an answer may come so much later: the keeper has to be woken.
pub(super) const TOLERANCE: Duration = Duration::from_millis(2);
