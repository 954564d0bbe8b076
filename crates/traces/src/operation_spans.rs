//! An operation of the pool as spans: its time in the queue, and on each token that had it.

use std::sync::Arc;
use std::time::Instant;

use hsmux_pool::{RequestTiming, SeatRun};
use hsmux_token::{Error, entry};
use opentelemetry::KeyValue;

use crate::Trace;

/// An operation that a traced request has asked for. Its spans are written when this is dropped, also where
/// the client has gone meanwhile.
pub struct OperationSpans {
    trace: Arc<Trace>,
    timing: Arc<RequestTiming>,
    call: &'static str,
    mechanism: Option<&'static str>,
    changes: bool,
    asked: Instant,
    outcome: Option<String>,
}

impl OperationSpans {
    /// It is asked for now.
    pub fn begin(trace: Arc<Trace>, operation: &hsmux_token::Operation) -> Self {
        let mechanism = operation.mechanism();
        Self {
            trace,
            timing: Arc::default(),
            call: operation.call(),
            mechanism: mechanism
                .and_then(|mechanism| entry(mechanism.kind))
                .map(|of| of.name),
            changes: operation.changes_token(),
            asked: Instant::now(),
            outcome: Some("gone".into()),
        }
    }

    /// The record that the pool fills with times.
    pub fn timing(&self) -> Arc<RequestTiming> {
        Arc::clone(&self.timing)
    }

    /// It has an answer.
    pub fn ended(mut self, error: Option<&Error>) {
        self.outcome = error.map(word);
    }

    fn of_run(&self, run: Option<&SeatRun>) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new("hsmux.operation", self.call)];
        if let Some(mechanism) = self.mechanism {
            attributes.push(KeyValue::new("hsmux.mechanism", mechanism));
        }
        if let Some(run) = run {
            attributes.push(KeyValue::new("hsmux.token", Arc::clone(&run.member)));
            attributes.push(KeyValue::new("hsmux.worker", Arc::clone(&run.seat)));
        }
        attributes
    }
}

impl Drop for OperationSpans {
    fn drop(&mut self) {
        let (now, outcome) = (Instant::now(), self.outcome.take());
        let runs = self.timing.runs();
        let Some((last, moved_on)) = runs.split_last() else {
            // No seat had it, or many: a change reaches all members.
            let name = if self.changes { self.call } else { QUEUE };
            return self
                .trace
                .past(name, (self.asked, now), self.of_run(None), outcome);
        };
        let mut since = self.asked;
        let moved_on = moved_on.iter().map(|run| (run, Some("moved on".into())));
        for (run, error) in moved_on.chain([(last, outcome)]) {
            let end = run.ended.unwrap_or(now);
            self.trace
                .past(QUEUE, (since, run.given), self.of_run(None), None);
            self.trace
                .past(self.call, (run.given, end), self.of_run(Some(run)), error);
            since = end;
        }
    }
}

/// An error's kind alone: its message may say more than others may know.
pub fn word(error: &Error) -> String {
    format!("{:?}", error.kind())
}

/// The name of the span for waiting for a token.
const QUEUE: &str = "queue";
