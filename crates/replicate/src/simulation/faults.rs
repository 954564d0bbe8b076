//! What goes wrong, by the seed: operations of tokens, lines of the journal, and the daemon itself.

use hsmux_token::ck::*;
use hsmux_token::{Error, Kind, Outcome, Result};

use super::plan::SeedPlan;
use super::world::WorldState;
use hsmux_token::fake::Random;

/// What becomes of one step.
pub(super) enum StepFault {
    None,
    /// It fails. An operation may have taken effect by then.
    Error {
        error: Error,
        has_effect: bool,
    },
    /// The daemon dies at it.
    Death {
        has_effect: bool,
    },
}

/// Answers of a token about itself, of which some end its connection.
const OF_TOKEN: [u64; 4] = [
    CKR_DEVICE_MEMORY,
    CKR_GENERAL_ERROR,
    CKR_DEVICE_ERROR,
    CKR_DEVICE_REMOVED,
];

/// Answers to a request: a token that gives one has done nothing.
const OF_REQUEST: [u64; 3] = [
    CKR_ATTRIBUTE_VALUE_INVALID,
    CKR_MECHANISM_INVALID,
    CKR_FUNCTION_REJECTED,
];

impl WorldState {
    /// What becomes of an operation of a token.
    pub fn fault_of_operation(&mut self, plan: &SeedPlan, call: &str) -> StepFault {
        let random = &mut self.random;
        if self.is_calm {
            return StepFault::None;
        }
        if random.one_in(plan.deaths) {
            let has_effect = random.one_in(2);
            return StepFault::Death { has_effect };
        }
        if !random.one_in(plan.failures) {
            return StepFault::None;
        }
        let (error, has_effect) = failure(random, call);
        StepFault::Error { error, has_effect }
    }

    /// What becomes of a line of the journal.
    pub fn fault_of_line(&mut self, plan: &SeedPlan) -> StepFault {
        if self.is_calm {
            return StepFault::None;
        }
        if self.random.one_in(plan.deaths) {
            return StepFault::Death { has_effect: false };
        }
        if self.random.one_in(plan.unwritable) {
            return StepFault::Error {
                error: Error::pool(Kind::Environment, "the disk is full"),
                has_effect: false,
            };
        }
        StepFault::None
    }
}

fn failure(random: &mut Random, call: &str) -> (Error, bool) {
    let error = match random.below(8) {
        0 => return (Error::vendor(call, *random.pick(&OF_REQUEST)), false),
        1 | 2 => Error::lost(format!("{call}: the worker died")),
        3 | 4 => Error::token(Kind::Deadline, format!("{call}: no answer in time")),
        _ => Error::vendor(call, *random.pick(&OF_TOKEN)),
    };
    (error, random.one_in(2))
}

/// How an answer is traced.
pub(super) fn word(result: &Result<Outcome>) -> String {
    match result {
        Ok(Outcome::Done) => "done".into(),
        Ok(Outcome::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Ok(Outcome::Objects(made)) => {
            let names = made.iter().map(|made| format!("{:?}", made.object.id));
            names.collect::<Vec<_>>().join(", ")
        }
        Err(error) => error.to_string(),
    }
}
