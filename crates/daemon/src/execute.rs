//! From a batch of an application to the pool and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Done, Error, Kind, ObjectRef, Operation, Outcome, Request, Result};
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
    let longest = service.shared.pool.options().deadline;
    let gather = BatchCollector::new(items.len(), answer, permit);
    let mut batch: SmallVec<[_; 1]> = SmallVec::new();
    for (index, item) in items.into_iter().enumerate() {
        let Item {
            operation,
            remaining_us,
            behalf,
        } = item;
        let behalf = behalf.filter(|_| settings.clients == Clients::Gateway);
        let actor = context.who.for_client(behalf.as_deref());
        let mut record = OperationRecord::open(context, actor, &operation, &catalogue, now);
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
        let request = Request {
            behalf: None,
            deadline: now + Duration::from_micros(remaining_us).min(longest),
            done: done(context, &gather, index, &operation, record, reserved),
            operation,
        };
        batch.push((request, timing));
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
    let destroyed = match operation {
        Operation::Destroy {
            object: ObjectRef::Session(object),
        } => Some(*object),
        _ => None,
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
        record.close(&context, &result);
        gather.put(&context, index, result);
    })
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
