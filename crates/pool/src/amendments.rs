//! Amendments of seats that are being read at the moment.

use std::collections::HashMap;

use hsmux_token::{Object, ObjectId};

/// What is there now, and what is gone.
type Amendment = (Vec<Object>, Vec<ObjectId>);

/// Kept for as long as somebody reads the seat, which may be several at a time.
#[derive(Default)]
pub(crate) struct Amendments(HashMap<usize, Log>);

#[derive(Default)]
struct Log {
    readers: usize,
    since: Vec<Amendment>,
}

impl Amendments {
    /// One more reads the seat: the place from which amendments concern it.
    pub fn begin(&mut self, index: usize) -> usize {
        let log = self.0.entry(index).or_default();
        log.readers += 1;
        log.since.len()
    }

    /// Keeps an amendment, if somebody reads.
    pub fn note(&mut self, index: usize, made: &[Object], gone: &[ObjectId]) {
        if let Some(log) = self.0.get_mut(&index) {
            log.since.push((made.to_vec(), gone.to_vec()));
        }
    }

    /// Those from a place on.
    pub fn since(&self, index: usize, from: usize) -> Vec<Amendment> {
        let log = self.0.get(&index);
        log.map_or_else(Vec::new, |log| log.since[from..].to_vec())
    }

    /// The place after the last one.
    pub fn noted(&self, index: usize) -> usize {
        self.0.get(&index).map_or(0, |log| log.since.len())
    }

    /// One has read; the last clears away.
    pub fn end(&mut self, index: usize) {
        if let Some(log) = self.0.get_mut(&index) {
            log.readers -= 1;
            if log.readers == 0 {
                self.0.remove(&index);
            }
        }
    }
}
