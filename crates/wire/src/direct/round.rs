//! The uses that a worker's thread does together: one frame or more, of one connection or several.

use std::time::Instant;

use hsmux_token::{Operation, Outcome, Result};

use super::CHUNK;
use super::connection::Use;
use crate::frame::KEPT;

/// The uses of several connections that are done together, and room for one frame each way.
pub(super) struct Round {
    pub operations: Vec<(Operation, Instant)>,
    pub parts: Vec<RoundPart>,
    /// The part of each operation, and its place among the part's uses.
    pub part_of: Vec<(usize, usize)>,
    pub chunk: Box<[u8]>,
    pub out: Vec<u8>,
}

/// The uses of one connection.
pub(super) struct RoundPart {
    /// The connection's number.
    pub reader: u64,
    pub results: Vec<Option<Result<Outcome>>>,
    /// Results that are still to come.
    pub missing: usize,
}

impl RoundPart {
    pub fn take_results(&mut self) -> impl Iterator<Item = Result<Outcome>> {
        self.results.drain(..).flatten()
    }
}

impl Default for Round {
    fn default() -> Self {
        Self {
            operations: Vec::new(),
            parts: Vec::new(),
            part_of: Vec::new(),
            chunk: vec![0; CHUNK].into_boxed_slice(),
            out: Vec::with_capacity(KEPT),
        }
    }
}

impl Round {
    /// Adds uses of a connection. Returns their results if all are refused.
    pub fn add(
        &mut self,
        reader: u64,
        uses: impl Iterator<Item = Use>,
    ) -> Option<Vec<Result<Outcome>>> {
        let mut part = RoundPart {
            reader,
            results: Vec::new(),
            missing: 0,
        };
        for each in uses {
            match each {
                Ok(operation) => {
                    self.part_of.push((self.parts.len(), part.results.len()));
                    self.operations.push(operation);
                    part.results.push(None);
                    part.missing += 1;
                }
                Err(refused) => part.results.push(Some(Err(refused))),
            }
        }
        if part.missing == 0 {
            return Some(part.take_results().collect());
        }
        self.parts.push(part);
        None
    }

    /// The connection that has asked, if it is one, for one use.
    pub fn only_reader(&self) -> Option<u64> {
        match (&self.parts[..], &self.part_of[..]) {
            ([part], [_]) => Some(part.reader),
            _ => None,
        }
    }

    /// How many there were; they are forgotten.
    pub fn served(&mut self) -> u64 {
        self.operations.clear();
        self.parts.clear();
        self.part_of.drain(..).count() as u64
    }
}
