//! The requests of clients, what was done for each, and how it was answered.

use std::collections::BTreeMap;
use std::time::Instant;

use hsmux_token::{Error, Kind, ObjectId, Operation, Outcome, Result, Scope, SessionObject, Verb};

use super::executor::Executor;
use super::keys;
use super::world::TOLERANCE;
use crate::Claim;

#[derive(Default)]
pub(super) struct SimulatedRequests {
    waiting: BTreeMap<u64, RequestModel>,
    /// Session objects that were made, by the client.
    pub made: Vec<(usize, SessionObject)>,
}

/// A request without its answer.
pub(super) struct RequestModel {
    pub client: usize,
    pub operation: Operation,
    pub deadline: Instant,
    /// Dropping it cancels the request.
    pub claim: Option<Claim>,
    /// The seats that were given it.
    seats: Vec<String>,
    /// How often a token may have begun it.
    begun: u32,
}

impl RequestModel {
    pub fn new(client: usize, operation: Operation, deadline: Instant) -> Self {
        Self {
            client,
            operation,
            deadline,
            claim: None,
            seats: Vec::new(),
            begun: 0,
        }
    }
}

impl SimulatedRequests {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn add(&mut self, number: u64, request: RequestModel) {
        self.waiting.insert(number, request);
    }

    pub fn keep_claim(&mut self, number: u64, claim: Claim) -> Option<Claim> {
        match self.waiting.get_mut(&number) {
            Some(request) => request.claim.replace(claim),
            None => Some(claim),
        }
    }

    /// Takes the claim of one of the requests.
    pub fn take_claim(&mut self, nth: usize) -> Option<Claim> {
        self.waiting.values_mut().nth(nth)?.claim.take()
    }

    /// A seat is given a request. Invariant 4.
    pub fn begins(
        &mut self,
        number: u64,
        seat: &str,
        connection: u64,
        now: Instant,
        executor: &Executor,
    ) {
        let Some(request) = self.waiting.get_mut(&number) else {
            return;
        };
        let call = request.operation.call();
        if request.begun > 0 && !request.operation.repeatable() {
            executor.fail(format!(
                "invariant 4: {call} is not repeatable, and was given to {:?} and to {seat} ({connection})",
                request.seats
            ));
        }
        if request.seats.iter().any(|before| before == seat) {
            executor.fail(format!("{seat} is given the same {call} again"));
        }
        if request.deadline + TOLERANCE < now {
            executor.fail(format!("{seat} is given a {call} after its deadline"));
        }
        request.seats.push(seat.into());
        request.begun += 1;
    }

    /// The token did not have the object.
    pub fn did_not_begin(&mut self, number: u64) {
        if let Some(request) = self.waiting.get_mut(&number) {
            request.begun -= 1;
        }
    }

    /// Invariant 2: an answer comes once and in time. And it is right.
    pub fn answered(
        &mut self,
        number: u64,
        result: &Result<Outcome>,
        now: Instant,
        executor: &Executor,
    ) -> Option<Claim> {
        let Some(request) = self.waiting.remove(&number) else {
            executor.fail(format!("invariant 2: request {number} is answered twice"));
            return None;
        };
        let call = request.operation.call();
        if now > request.deadline + TOLERANCE {
            let late = now - request.deadline;
            executor.fail(format!("invariant 2: {call} is answered {late:?} too late"));
        }
        executor.trace(number << 1 | u64::from(result.is_ok()));
        match result {
            Ok(outcome) => {
                if let Some(wrong) = wrong(&request.operation, outcome) {
                    executor.fail(format!("{call} by {:?}: {wrong}", request.seats));
                }
                if let Outcome::Objects(made) = outcome {
                    let made = made.iter().filter_map(|made| made.session);
                    self.made
                        .extend(made.map(|object| (request.client, object)));
                }
            }
            Err(error) => {
                if let Some(wrong) = unfit(error) {
                    executor.fail(format!("{call} by {:?}: {wrong}: {error}", request.seats));
                }
            }
        }
        request.claim
    }

    /// The first request that has no answer though its deadline has passed.
    pub fn overdue(&self, now: Instant) -> Option<u64> {
        let is_overdue = |request: &RequestModel| request.deadline + TOLERANCE < now;
        let mut overdue = self.waiting.iter().filter(|(_, r)| is_overdue(r));
        overdue.next().map(|(number, _)| *number)
    }

    /// Takes out all claims: no client goes away any more.
    pub fn claims(&mut self) -> Vec<Claim> {
        let claims = self.waiting.values_mut();
        claims.filter_map(|request| request.claim.take()).collect()
    }
}

/// Why an answer is wrong.
fn wrong(operation: &Operation, outcome: &Outcome) -> Option<String> {
    let Operation::Use {
        verb, key, data, ..
    } = operation
    else {
        return None;
    };
    let Outcome::Bytes(bytes) = outcome else {
        return Some(format!("{outcome:?} is no answer"));
    };
    let right = match key {
        hsmux_token::ObjectRef::Token(id) => right(id, *verb, data),
        hsmux_token::ObjectRef::Session(_) => data.to_vec(),
    };
    (right != **bytes).then(|| "the answer is of another key".into())
}

fn right(id: &ObjectId, verb: Verb, data: &[u8]) -> Vec<u8> {
    let number = keys::number(id);
    number.map_or_else(Vec::new, |number| keys::answer(number, verb, data))
}

/// Why an error is not one for a client.
fn unfit(error: &Error) -> Option<&'static str> {
    if error.kind() == Kind::Lost && error.to_string().contains("on its way") {
        return Some("invariant 2: the request was dropped");
    }
    (error.scope() == Scope::Token).then_some("an error of a token reaches a client")
}
