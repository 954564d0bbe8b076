//! From a batch of an application to the pool and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_audit::Event;
use hsmux_pool::Catalogue;
use hsmux_token::{Batch, Done, Error, Kind, ObjectRef, Operation, Outcome, Request, Result, ck};
use hsmux_wire::{Answer, Answerer, Item};
use parking_lot::Mutex;

use crate::rights::Rights;
use crate::talk::Session;

/// Operations of one call; no library sends as many.
const MOST: usize = 1024;

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
    if items.len() > MOST {
        let message = format!("{} operations in one call; {MOST} may be", items.len());
        let error = Error::request(Kind::Invalid, message);
        return answer.send(&session.reply(Answer::Failed(error)));
    }
    let now = Instant::now();
    // Nobody waits longer, whatever the other end says.
    let longest = service.shared.pool.options().deadline;
    let gather = Gather::new(items.len(), answer);
    let mut batch = Batch::new();
    for (index, item) in items.into_iter().enumerate() {
        let Item {
            operation,
            remaining_us,
        } = item;
        let record = Record::of(session, &operation, &catalogue, now);
        let record = match admitted(session, &rights, &operation, record) {
            Ok(record) => record,
            Err(error) => {
                gather.put(session, index, Err(error));
                continue;
            }
        };
        batch.push(Request {
            deadline: now + Duration::from_micros(remaining_us).min(longest),
            done: done(session, &gather, index, &operation, record),
            operation,
        });
    }
    if !batch.is_empty() {
        session.visit.submit(batch);
    }
}

/// Whether the operation may run; its record then goes with it.
fn admitted(
    session: &Session,
    rights: &Rights<'_>,
    operation: &Operation,
    record: Option<Record>,
) -> Result<Option<Record>> {
    let permitted = rights.check(operation, |object| session.application.owns(object));
    match (permitted, record) {
        (Ok(()), Some(record)) => {
            // What is refused for want of a trail has no line: the trail counts it.
            session.application.service.shared.audit.admit()?;
            Ok(Some(record))
        }
        (Err(error), Some(record)) => {
            record.write(session, &Err(error.clone()));
            Err(error)
        }
        (permitted, None) => permitted.map(|()| None),
    }
}

/// What follows an operation: its objects change hands, the trail gets its line, the answer its part.
fn done(
    session: &Arc<Session>,
    gather: &Arc<Gather>,
    index: usize,
    operation: &Operation,
    record: Option<Record>,
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
        if let (Some(object), Ok(_)) = (&destroyed, &result) {
            session.application.forget(object);
        }
        if let Some(record) = record {
            record.write(&session, &result);
        }
        gather.put(&session, index, result);
    })
}

/// Results as they come in, and the answer for when all are there.
struct Gather(Mutex<Gathered>);

struct Gathered {
    missing: usize,
    results: Vec<Option<Result<Outcome>>>,
    answer: Option<Answerer>,
}

impl Gather {
    fn new(len: usize, answer: Answerer) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Gathered {
            missing: len,
            results: std::iter::repeat_with(|| None).take(len).collect(),
            answer: Some(answer),
        })))
    }

    fn put(&self, session: &Session, index: usize, result: Result<Outcome>) {
        let result = session.result(result);
        let mut gathered = self.0.lock();
        gathered.results[index] = Some(result);
        gathered.missing -= 1;
        if gathered.missing > 0 {
            return;
        }
        let results = std::mem::take(&mut gathered.results);
        let answer = gathered.answer.take();
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

/// A use of a key, for the audit trail.
struct Record {
    call: &'static str,
    key: String,
    label: Option<String>,
    mechanism: Option<String>,
    since: Instant,
}

impl Record {
    /// `None` where no trail is kept, or no key is used.
    fn of(
        session: &Session,
        operation: &Operation,
        catalogue: &Catalogue,
        since: Instant,
    ) -> Option<Self> {
        if !session.application.service.shared.audit.wants_uses() {
            return None;
        }
        let (key, label) = match operation.objects().next() {
            Some(ObjectRef::Token(id)) => {
                let entry = catalogue.get(id);
                let label = entry.and_then(|entry| entry.object.attributes.text(ck::CKA_LABEL));
                (id.to_string(), label)
            }
            Some(ObjectRef::Session(object)) => (format!("session {}", object.handle), None),
            None if operation.repeatable() => return None,
            None => ("new".to_owned(), None),
        };
        Some(Self {
            call: operation.call(),
            key,
            label,
            mechanism: operation
                .mechanism()
                .map(|mechanism| mechanism.name().into_owned()),
            since,
        })
    }

    fn write(self, session: &Session, result: &Result<Outcome>) {
        let event = Event::key_use(&session.who.actor, self.call, self.key)
            .label(self.label)
            .mechanism(self.mechanism)
            .took(self.since.elapsed().as_micros() as u64);
        let event = match result {
            Ok(_) => event,
            Err(error) => event.outcome(error.to_string()),
        };
        session.application.service.shared.audit.record(event);
    }
}
