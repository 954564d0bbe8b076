//! From a batch of an application to the pool and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Done, Error, Kind, ObjectRef, Operation, Outcome, Request, Result};
use hsmux_wire::frame::MAX_FRAME;
use hsmux_wire::{Answer, Answerer, Item};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::account::Account;
use crate::places::Place;
use crate::rights::Rights;
use crate::session_objects::Reserved;
use crate::talk::Session;

/// Runs the operations; the answer goes out when the last is done.
pub fn execute(session: &Arc<Session>, items: Vec<Item>, answer: Answerer) {
    let service = &session.application.service;
    let catalogue = service.shared.pool.catalogue();
    let settings = service.settings.load();
    let rights = Rights {
        settings: &settings,
        catalogue: &catalogue,
        logged_in: session.application.logged_in(),
    };
    if items.is_empty() {
        return answer.send(&session.reply(Answer::Results(Vec::new())));
    }
    let place = match service.place(&settings, catalogue.own.lanes) {
        Ok(place) => place,
        Err(error) => return answer.send(&session.reply(Answer::Failed(error))),
    };
    let now = Instant::now();
    // Nobody waits longer, whatever the other end says.
    let longest = service.shared.pool.options().deadline;
    let gather = Gather::new(items.len(), answer, place);
    let mut batch: SmallVec<[_; 1]> = SmallVec::new();
    for (index, item) in items.into_iter().enumerate() {
        let Item {
            operation,
            remaining_us,
        } = item;
        let mut account = Account::open(session, &operation, &catalogue, now);
        let permitted = rights.check(&operation, |object| session.application.owned(object));
        let permitted = permitted.inspect_err(|_| account.deny(session));
        let admitted = permitted.and_then(|()| account.admit(session));
        let reserved = match admitted.and_then(|()| session.application.room_for(&operation)) {
            Ok(reserved) => reserved,
            Err(error) => {
                let refused = Err(error);
                account.close(session, &refused);
                gather.put(session, index, refused);
                continue;
            }
        };
        if let Operation::SetAttributes {
            object: ObjectRef::Session(object),
            template,
        } = &operation
        {
            session.application.grow(object, template.bytes());
        }
        let timing = account.timing(&operation);
        let request = Request {
            deadline: now + Duration::from_micros(remaining_us).min(longest),
            done: done(session, &gather, index, &operation, account, reserved),
            operation,
        };
        batch.push((request, timing));
    }
    if !batch.is_empty() {
        session.connection.submit(batch);
    }
}

/// What follows an operation: its objects change hands, it is accounted for, the answer gets its part.
fn done(
    session: &Arc<Session>,
    gather: &Arc<Gather>,
    index: usize,
    operation: &Operation,
    account: Account,
    reserved: Option<Reserved>,
) -> Done {
    let destroyed = match operation {
        Operation::Destroy {
            object: ObjectRef::Session(object),
        } => Some(*object),
        _ => None,
    };
    let session = Arc::clone(session);
    let gather = Arc::clone(gather);
    Done::new(move |mut result| {
        if let Ok(Outcome::Objects(made)) = &result
            && let Err(error) = session.application.keep(made)
        {
            result = Err(error);
        }
        // What was made is counted for itself by now.
        drop(reserved);
        if let (Some(object), Ok(_)) = (&destroyed, &result) {
            session.application.forget(object);
        }
        account.close(&session, &result);
        gather.put(&session, index, result);
    })
}

/// Results as they come in, and the answer for when all are there.
struct Gather(Mutex<Gathered>);

struct Gathered {
    missing: usize,
    results: Vec<Option<Result<Outcome>>>,
    /// Of the results that are there.
    bytes: usize,
    answer: Option<Answerer>,
    place: Option<Place>,
}

impl Gather {
    fn new(len: usize, answer: Answerer, place: Option<Place>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Gathered {
            missing: len,
            bytes: 0,
            results: std::iter::repeat_with(|| None).take(len).collect(),
            answer: Some(answer),
            place,
        })))
    }

    fn put(&self, session: &Session, index: usize, result: Result<Outcome>) {
        let mut result = session.result(result);
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
        // Before the answer, upon which the next call may come at once.
        drop(gathered.place.take());
        drop(gathered);
        let lost = || Err(Error::lost("no result"));
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(lost));
        if let Some(answer) = answer {
            answer.send(&session.reply(Answer::Results(results.collect())));
        }
    }
}

fn too_long() -> Error {
    let message =
        format!("the answers of one call have more than {MAX_FRAME} bytes: ask for less at once");
    Error::request(Kind::Invalid, message)
}
