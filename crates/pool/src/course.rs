//! The course of one request: which seats had it, and when.

use std::sync::Arc;
use std::time::Instant;

use hsmux_token::sync::Mutex;

use crate::record::Record;

/// How a request goes, for those who say where its time was spent. Filled while it runs.
#[derive(Default)]
pub struct Course(Mutex<Vec<Run>>);

/// A request on a seat. What comes before the first run, and between two of them, is its time in the queue.
#[derive(Clone, Debug)]
pub struct Run {
    /// `hsm1`.
    pub member: Arc<str>,
    /// `hsm1#2`.
    pub seat: Arc<str>,
    /// When the seat was given it.
    pub given: Instant,
    /// When the seat had answered, or was no longer waited for; `None`: it runs.
    pub ended: Option<Instant>,
}

impl Course {
    /// One after the other: more than one where seats have failed the request.
    pub fn runs(&self) -> Vec<Run> {
        self.0.lock().clone()
    }

    pub(crate) fn given(&self, to: &Record, at: Instant) {
        self.0.lock().push(Run {
            member: Arc::clone(&to.member),
            seat: Arc::clone(&to.name),
            given: at,
            ended: None,
        });
    }

    pub(crate) fn ended(&self) {
        if let Some(run) = self.0.lock().last_mut() {
            run.ended.get_or_insert_with(Instant::now);
        }
    }
}
