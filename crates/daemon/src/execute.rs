//! From a batch of an application to the pool and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_pool::Owner;
use hsmux_token::{Done, Error, Kind, ObjectId, ObjectRef, Operation, Outcome, Request, Result};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Answer, Answerer, Item};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::application_connection::ConnectionContext;
use crate::operation_record::OperationRecord;
use crate::outstanding_calls::CallPermit;
use crate::rights::Rights;
use crate::session_objects::SessionObjectReservation;
use crate::settings::Clients;

/// How long a change of the broker may take at most: an RSA key takes minutes on a card.
const BROKER_CHANGE: Duration = Duration::from_secs(600);

/// Runs the operations. The answer is sent when the last one is done.
pub fn execute(context: &Arc<ConnectionContext>, items: Vec<Item>, answer: Answerer) {
    let service = &context.application.service;
    let catalogue = service.shared.pool.catalogue();
    let settings = service.settings.load();
    let rights = Rights {
        settings: &settings,
        catalogue: &catalogue,
        logged_in: context.application.logged_in(),
    };
    if items.is_empty() {
        return answer.send(&context.reply(Answer::Results(Vec::new())));
    }
    let permit = match service.call_permit(&settings, catalogue.own.lanes) {
        Ok(permit) => permit,
        Err(error) => return answer.send(&context.reply(Answer::Failed(error))),
    };
    let now = Instant::now();
    // The configured deadline is the longest, whatever the other end asks for.
    let longest = |operation: &Operation| {
        let is_change = settings.clients == Clients::Broker && operation.changes_token();
        if is_change {
            BROKER_CHANGE
        } else {
            service.shared.pool.options().deadline
        }
    };
    let gather = BatchCollector::new(items.len(), answer, permit);
    let mut batch: SmallVec<[_; 1]> = SmallVec::new();
    for (index, item) in items.into_iter().enumerate() {
        let Item {
            operation,
            remaining_us,
            behalf,
        } = item;
        let behalf = behalf.filter(|_| settings.clients.is_service());
        let behalf = behalf.unwrap_or_default();
        let mut record = OperationRecord::open(context, &behalf, &operation, &catalogue, now);
        let permitted = rights.check(&operation, |object| context.application.owned(object));
        let permitted = permitted.inspect_err(|_| record.deny(context));
        let admitted = permitted.and_then(|()| record.admit(context));
        let reserved = match admitted.and_then(|()| context.application.room_for(&operation)) {
            Ok(reserved) => reserved,
            Err(error) => {
                let refused = Err(error);
                record.close(context, &refused);
                gather.put(context, index, refused);
                continue;
            }
        };
        if let Operation::SetAttributes {
            object: ObjectRef::Session(object),
            template,
        } = &operation
        {
            context.application.grow(object, template.bytes());
        }
        let timing = record.timing(&operation);
        let is_change = operation.changes_token();
        let request = Request {
            behalf: None,
            deadline: now + Duration::from_micros(remaining_us).min(longest(&operation)),
            done: done(context, &gather, index, &operation, record, reserved),
            operation,
        };
        // Changes of a service have one turn, whatever numbers it gives to its clients.
        if behalf.request == 0 || is_change {
            batch.push((request, timing));
            continue;
        }
        let owner = match settings.clients {
            Clients::Broker => Owner::Broker(behalf.number),
            _ => service.owner(context.who.account),
        };
        let application = &context.application;
        application.submit_withdrawable(behalf.request, owner, request, timing);
    }
    if !batch.is_empty() {
        context.connection.submit(batch);
    }
}

/// Completes an operation: takes over its objects, ends its record, and adds its result to the answer.
fn done(
    context: &Arc<ConnectionContext>,
    gather: &Arc<BatchCollector>,
    index: usize,
    operation: &Operation,
    record: OperationRecord,
    reserved: Option<SessionObjectReservation>,
) -> Done {
    let (destroyed, destroyed_key) = match operation {
        Operation::Destroy {
            object: ObjectRef::Session(object),
        } => (Some(*object), None),
        Operation::Destroy {
            object: ObjectRef::Token(id),
        } => (None, Some(*id)),
        _ => (None, None),
    };
    let context = Arc::clone(context);
    let gather = Arc::clone(gather);
    Done::new(move |mut result| {
        if let Ok(Outcome::Objects(made)) = &result
            && let Err(error) = context.application.keep(made)
        {
            result = Err(error);
        }
        // The new objects are counted by themselves now.
        drop(reserved);
        if let (Some(object), Ok(_)) = (&destroyed, &result) {
            context.application.forget(object);
        }
        if let Some(id) = &destroyed_key {
            result = result.map_err(|error| context.explain_unknown(error, id));
        }
        record.close(&context, &result);
        gather.put(&context, index, result);
    })
}

impl ConnectionContext {
    /// The broker forgets a key that is unknown, so it hears of one that will be back.
    fn explain_unknown(&self, error: Error, id: &ObjectId) -> Error {
        let service = &self.application.service;
        let is_brokers = service.settings.load().clients == Clients::Broker;
        let is_unknown = error.kind() == Kind::UnknownObject;
        if !(is_brokers && is_unknown && service.shared.pool.catalogue().may_return(id)) {
            return error;
        }
        let message =
            "C_DestroyObject: the key is on a token that is away: it goes when that is back";
        Error::pool(Kind::NoReplica, message)
    }
}

/// Collects results, and sends the answer when it has all of them.
struct BatchCollector(Mutex<BatchResults>);

struct BatchResults {
    missing: usize,
    results: Vec<Option<Result<Outcome>>>,
    /// The bytes of the results so far.
    bytes: usize,
    answer: Option<Answerer>,
    permit: Option<CallPermit>,
}

impl BatchCollector {
    fn new(len: usize, answer: Answerer, permit: Option<CallPermit>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(BatchResults {
            missing: len,
            bytes: 0,
            results: std::iter::repeat_with(|| None).take(len).collect(),
            answer: Some(answer),
            permit,
        })))
    }

    fn put(&self, context: &ConnectionContext, index: usize, result: Result<Outcome>) {
        let mut result = context.result(result);
        let mut gathered = self.0.lock();
        gathered.bytes += result.as_ref().map_or(0, Outcome::bytes);
        if gathered.bytes > MAX_FRAME {
            result = Err(too_long());
        }
        gathered.results[index] = Some(result);
        gathered.missing -= 1;
        if gathered.missing > 0 {
            return;
        }
        let results = std::mem::take(&mut gathered.results);
        let answer = gathered.answer.take();
        // Before the answer is sent, because the next call may come at once.
        drop(gathered.permit.take());
        drop(gathered);
        let lost = || Err(Error::lost("no result"));
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(lost));
        if let Some(answer) = answer {
            answer.send(&context.reply(Answer::Results(results.collect())));
        }
    }
}

fn too_long() -> Error {
    let message =
        format!("the answers of one call have more than {MAX_FRAME} bytes: ask for less at once");
    Error::request(Kind::Invalid, message)
}

#[cfg(test)]
mod tests;
