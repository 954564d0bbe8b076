//! What is written down of an operation: a line on the audit trail, and spans. Of a use of a key where neither is
//! wanted, this is two looks and nothing else.

use std::sync::Arc;
use std::time::Instant;

use hsmux_audit::Event;
use hsmux_pool::{Catalogue, RequestTiming};
use hsmux_token::{Class, Error, Object, ObjectRef, Operation, Outcome, Result, ck, rv_name};
use hsmux_traces::{Trace, word};

use crate::talk::Session;

/// An operation's, from its request to its answer.
pub struct Account {
    line: Option<Line>,
    traced: Option<Box<Traced>>,
}

/// A use of a key, or a change of a token's object, for the audit trail.
struct Line {
    call: &'static str,
    key: String,
    label: Option<String>,
    class: Option<&'static str>,
    mechanism: Option<String>,
    /// Whether it changes a token's object: that has a line always.
    changes: bool,
    /// It is denied, and one of those that have a line.
    heard: bool,
    since: Instant,
}

/// A trace of its own: a program says of none that its operation is part of it.
struct Traced {
    trace: Arc<Trace>,
    /// Once it was admitted.
    operation: Option<hsmux_traces::OperationSpans>,
}

/// So many in a minute of one user and call have lines of their own, where they come to nothing.
const IN_VAIN: u64 = 100;

impl Account {
    /// It was asked for.
    pub fn open(
        session: &Session,
        operation: &Operation,
        catalogue: &Catalogue,
        since: Instant,
    ) -> Self {
        Self {
            line: Line::of(session, operation, catalogue, since),
            traced: Traced::begin(session, operation),
        }
    }

    /// It may not be done. That costs nothing: of those who try it again and again some have a line where all uses have
    /// one, else the first, and the others are counted.
    pub fn deny(&mut self, session: &Session) {
        let Some(line) = &mut self.line else { return };
        let shared = &session.application.service.shared;
        let lines = if shared.audit.wants_uses() {
            IN_VAIN
        } else {
            1
        };
        if shared.refusals.is_among(&session.who, line.call, lines) {
            line.heard = true;
        } else {
            self.line = None;
        }
    }

    /// Refuses it where its line cannot be written; that has no line, but is counted.
    pub fn admit(&mut self, session: &Session) -> Result<()> {
        if self.line.is_none() {
            return Ok(());
        }
        let admitted = session.application.service.shared.audit.admit();
        if admitted.is_err() {
            self.line = None;
        }
        admitted
    }

    /// The pool is given it: where that writes down how it goes.
    pub fn timing(&mut self, operation: &Operation) -> Option<Arc<RequestTiming>> {
        let traced = self.traced.as_mut()?;
        let trace = Arc::clone(&traced.trace);
        let begun = hsmux_traces::OperationSpans::begin(trace, operation);
        Some(traced.operation.insert(begun).timing())
    }

    /// It has its answer. A change that fails may cost as little as one that is denied.
    pub fn close(self, session: &Session, result: &Result<Outcome>) {
        if let Some(line) = self.line {
            let shared = &session.application.service.shared;
            let in_vain = result.is_err() && line.changes && !line.heard;
            if !in_vain || shared.refusals.is_among(&session.who, line.call, IN_VAIN) {
                line.write(session, result);
            }
        }
        if let Some(traced) = self.traced {
            traced.end(result);
        }
    }
}

impl Line {
    /// `None` where nothing is to be recorded: a use where uses are not, or no key at all.
    fn of(
        session: &Session,
        operation: &Operation,
        catalogue: &Catalogue,
        since: Instant,
    ) -> Option<Self> {
        let changes = operation.changes_token();
        // C_SignInit uses no key.
        let uses = !changes && !matches!(operation, Operation::Begin { .. });
        let wanted = changes || uses && session.application.service.shared.audit.wants_uses();
        if !wanted {
            return None;
        }
        let label = match worked_on(operation) {
            Some(ObjectRef::Token(id)) => catalogue
                .get(id)
                .and_then(|entry| entry.object.attributes.text(ck::CKA_LABEL)),
            _ => None,
        };
        Some(Self {
            call: operation.call(),
            key: key(operation)?,
            label,
            class: class(operation),
            mechanism: mechanism(operation),
            changes,
            heard: false,
            since,
        })
    }

    fn write(self, session: &Session, result: &Result<Outcome>) {
        let made = made(result).filter(|_| self.changes);
        // What is made of another object has that one's: its own is the program's to choose.
        let new = made.filter(|_| self.key == NEW);
        let label = self
            .label
            .or_else(|| new.and_then(|object| object.attributes.text(ck::CKA_LABEL)));
        let event = Event::key_use(&session.who.actor, self.call, self.key)
            .label(label)
            .class(self.class)
            .made(made.map(|object| object.id.to_string()))
            .mechanism(self.mechanism)
            .took(self.since.elapsed().as_micros() as u64);
        let event = match result {
            Ok(_) => event,
            Err(error) => event.outcome(error.to_string()),
        };
        session.application.service.shared.audit.record(event);
    }
}

impl Traced {
    /// `None` where it is not traced.
    fn begin(session: &Session, operation: &Operation) -> Option<Box<Self>> {
        let traces = &session.application.service.shared.traces;
        let trace = traces.begin(|| None)?;
        trace.name(format!("PKCS#11 {}", operation.call()));
        trace.say("hsmux.operation", operation.call());
        trace.say("hsmux.program", session.who.program().to_owned());
        trace.say("hsmux.uid", i64::from(session.who.uid));
        trace.say("hsmux.pid", i64::from(session.who.pid));
        if let Some(key) = key(operation) {
            trace.say("hsmux.key", key);
        }
        if let Some(mechanism) = mechanism(operation) {
            trace.say("hsmux.mechanism", mechanism);
        }
        Some(Box::new(Self {
            trace,
            operation: None,
        }))
    }

    fn end(self, result: &Result<Outcome>) {
        let error = result.as_ref().err();
        if let Some(operation) = self.operation {
            operation.ended(error);
        }
        let code = error.map_or(ck::CKR_OK, Error::to_rv);
        self.trace.say("hsmux.result", rv_name(code));
        self.trace.end(error.map(word));
    }
}

/// What a new object is called as long as it is none.
const NEW: &str = "new";

/// Which key it is about, if it is about one.
fn key(operation: &Operation) -> Option<String> {
    match worked_on(operation) {
        Some(ObjectRef::Token(id)) => Some(id.to_string()),
        Some(ObjectRef::Session(object)) => Some(format!("session {}", object.handle)),
        None => (!operation.repeatable()).then(|| NEW.to_owned()),
    }
}

/// The first object of it; one that a new one is only to be near is none.
fn worked_on(operation: &Operation) -> Option<&ObjectRef> {
    match operation {
        Operation::Create { .. } => None,
        _ => operation.objects().next(),
    }
}

/// What sort of object it changes: both halves of a pair have one name.
fn class(operation: &Operation) -> Option<&'static str> {
    let class = match operation {
        Operation::Create { template, .. } => Class(template.number(ck::CKA_CLASS)?),
        Operation::Copy {
            object: ObjectRef::Token(id),
            ..
        }
        | Operation::SetAttributes {
            object: ObjectRef::Token(id),
            ..
        }
        | Operation::Destroy {
            object: ObjectRef::Token(id),
        } => id.class,
        _ => return None,
    };
    Some(class.name())
}

/// The token's object that it has made; of a pair the first of two with one name.
fn made(result: &Result<Outcome>) -> Option<&Object> {
    let Ok(Outcome::Objects(made)) = result else {
        return None;
    };
    let of_token = made.iter().find(|made| made.session.is_none());
    of_token.map(|made| &made.object)
}

fn mechanism(operation: &Operation) -> Option<String> {
    let mechanism = operation.mechanism()?;
    Some(mechanism.name().into_owned())
}
