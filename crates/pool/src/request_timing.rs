//! The timing of one request: which seats ran it, and when.

use std::sync::Arc;
use std::time::Instant;

use crate::clock::{self, Mutex};
use crate::record::Record;

/// How a request goes, for those who say where its time was spent. Filled while it runs.
#[derive(Default)]
pub struct RequestTiming(Mutex<Vec<SeatRun>>);

/// One run of a request on a seat. The request's time outside its runs is time in the queue.
#[derive(Clone, Debug)]
pub struct SeatRun {
    /// `hsm1`.
    pub member: Arc<str>,
    /// `hsm1#2`.
    pub seat: Arc<str>,
    /// When the seat was given it.
    pub given: Instant,
    /// When the seat answered, or was given up. `None` while it runs.
    pub ended: Option<Instant>,
}

impl RequestTiming {
    /// All runs in order: more than one if seats have failed the request.
    pub fn runs(&self) -> Vec<SeatRun> {
        self.0.lock().clone()
    }

    pub(crate) fn given(&self, to: &Record, at: Instant) {
        self.0.lock().push(SeatRun {
            member: Arc::clone(&to.member),
            seat: Arc::clone(&to.name),
            given: at,
            ended: None,
        });
    }

    pub(crate) fn ended(&self) {
        if let Some(run) = self.0.lock().last_mut() {
            run.ended.get_or_insert_with(clock::now);
        }
    }
}
