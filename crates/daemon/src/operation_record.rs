//! The record of an operation: a line on the audit trail, and spans. If a use of a key needs neither, this costs two
//! checks.

use std::sync::Arc;
use std::time::Instant;

use hsmux_audit::{Actor, Event};
use hsmux_pool::{Catalogue, RequestTiming};
use hsmux_token::{
    Behalf, Class, Error, Object, ObjectRef, Operation, Outcome, Result, ck, rv_name,
};
use hsmux_traces::{Trace, word};

use crate::application_connection::ConnectionContext;
use crate::settings::Clients;

/// The record of an operation, from its request to its answer.
pub struct OperationRecord {
    line: Option<AuditLine>,
    /// Whether a line is due. The broker sends its own.
    is_due: bool,
    traced: Option<Box<OperationTrace>>,
}

/// A use of a key, or a change of a token's object, for the audit trail.
struct AuditLine {
    actor: Arc<Actor>,
    call: &'static str,
    key: String,
    label: Option<String>,
    class: Option<&'static str>,
    mechanism: Option<String>,
    /// True if it changes a token's object: a change always has a line.
    changes: bool,
    /// It was denied, and gets a line all the same.
    heard: bool,
    since: Instant,
}

/// A trace of its own for a program, which sends no trace context; else the trace of a service's request.
struct OperationTrace {
    trace: Arc<Trace>,
    /// Set when the operation is admitted.
    operation: Option<hsmux_traces::OperationSpans>,
}

/// The failed operations per minute, user and call that have lines of their own.
const IN_VAIN: u64 = 100;

impl OperationRecord {
    /// Begins the record.
    pub fn open(
        context: &ConnectionContext,
        behalf: &Behalf,
        operation: &Operation,
        catalogue: &Catalogue,
        since: Instant,
    ) -> Self {
        let clients = context.application.service.settings.load().clients;
        let is_due = AuditLine::is_due(context, operation);
        let is_own = is_due && clients != Clients::Broker;
        let line = is_own.then(|| {
            let actor = context.who.for_client(behalf.client.as_deref());
            AuditLine::of(actor, operation, catalogue, since)
        });
        Self {
            line: line.flatten(),
            is_due,
            traced: match &behalf.trace {
                Some(parent) => OperationTrace::join(context, parent),
                None if clients == Clients::Broker => None,
                None => OperationTrace::begin(context, operation),
            },
        }
    }

    /// The operation is denied. A denial costs its program nothing, so only the first ones get lines: [`IN_VAIN`] if
    /// uses are recorded, else one. The others are counted.
    pub fn deny(&mut self, context: &ConnectionContext) {
        let Some(line) = &mut self.line else { return };
        let shared = &context.application.service.shared;
        let lines = if shared.audit.wants_uses() {
            IN_VAIN
        } else {
            1
        };
        if shared.refusals.is_among(&context.who, line.call, lines) {
            line.heard = true;
        } else {
            self.line = None;
        }
    }

    /// Refuses the operation if its line cannot be written. Such a refusal has no line, but is counted.
    pub fn admit(&mut self, context: &ConnectionContext) -> Result<()> {
        if !self.is_due {
            return Ok(());
        }
        let admitted = context.application.service.shared.audit.admit();
        if admitted.is_err() {
            self.line = None;
        }
        admitted
    }

    /// The operation goes to the pool. Answers the timing for the pool to fill, if the operation is traced.
    pub fn timing(&mut self, operation: &Operation) -> Option<Arc<RequestTiming>> {
        let traced = self.traced.as_mut()?;
        let trace = Arc::clone(&traced.trace);
        let begun = hsmux_traces::OperationSpans::begin(trace, operation);
        Some(traced.operation.insert(begun).timing())
    }

    /// Ends the record. Failed changes are limited like denials, because they may cost as little.
    pub fn close(self, context: &ConnectionContext, result: &Result<Outcome>) {
        if let Some(line) = self.line {
            let shared = &context.application.service.shared;
            let in_vain = result.is_err() && line.changes && !line.heard;
            if !in_vain || shared.refusals.is_among(&context.who, line.call, IN_VAIN) {
                line.write(context, result);
            }
        }
        if let Some(traced) = self.traced {
            traced.end(result);
        }
    }
}

impl AuditLine {
    /// False if nothing is recorded: no key is used, or uses are not recorded.
    fn is_due(context: &ConnectionContext, operation: &Operation) -> bool {
        let changes = operation.changes_token();
        // C_SignInit uses no key.
        let uses = !changes && !matches!(operation, Operation::Begin { .. });
        let is_wanted = changes || uses && context.application.service.shared.audit.wants_uses();
        is_wanted && key(operation).is_some()
    }

    fn of(
        actor: Arc<Actor>,
        operation: &Operation,
        catalogue: &Catalogue,
        since: Instant,
    ) -> Option<Self> {
        let label = match worked_on(operation) {
            Some(ObjectRef::Token(id)) => catalogue
                .get(id)
                .and_then(|entry| entry.object.attributes.text(ck::CKA_LABEL)),
            _ => None,
        };
        Some(Self {
            actor,
            call: operation.call(),
            key: key(operation)?,
            label,
            class: class(operation),
            mechanism: mechanism(operation),
            changes: operation.changes_token(),
            heard: false,
            since,
        })
    }

    fn write(self, context: &ConnectionContext, result: &Result<Outcome>) {
        let made = made(result).filter(|_| self.changes);
        // What is made of another object has that one's: its own is the program's to choose.
        let new = made.filter(|_| self.key == NEW);
        let label = self
            .label
            .or_else(|| new.and_then(|object| object.attributes.text(ck::CKA_LABEL)));
        let event = Event::key_use(&self.actor, self.call, self.key)
            .label(label)
            .class(self.class)
            .made(made.map(|object| object.id.to_string()))
            .mechanism(self.mechanism)
            .took(self.since.elapsed().as_micros() as u64);
        let event = match result {
            Ok(_) => event,
            Err(error) => event.outcome(error.to_string()),
        };
        context.application.service.shared.audit.record(event);
    }
}

impl OperationTrace {
    /// The operation belongs to the request of a service.
    fn join(context: &ConnectionContext, parent: &str) -> Option<Box<Self>> {
        let traces = &context.application.service.shared.traces;
        Some(Box::new(Self {
            trace: traces.join(parent)?,
            operation: None,
        }))
    }

    /// `None` where it is not traced.
    fn begin(context: &ConnectionContext, operation: &Operation) -> Option<Box<Self>> {
        let traces = &context.application.service.shared.traces;
        let trace = traces.begin(|| None)?;
        trace.name(format!("PKCS#11 {}", operation.call()));
        trace.say("hsmux.operation", operation.call());
        trace.say("hsmux.program", context.who.program().to_owned());
        trace.say("hsmux.uid", i64::from(context.who.uid));
        trace.say("hsmux.pid", i64::from(context.who.pid));
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
