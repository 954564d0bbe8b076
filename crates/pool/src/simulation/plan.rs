//! What a seed decides beforehand: the tokens, the options of the pool, and how much goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use super::keys;
use super::token::{Refusal, TokenModel};
use crate::{Options, Policy};
use hsmux_token::fake::Random;

pub(super) struct SimulationPlan {
    pub tokens: Vec<TokenPlan>,
    pub policy: Policy,
    pub queue: usize,
    /// How long a token may be silent.
    pub timeout: Duration,
    pub clients: usize,
    /// The most requests at once.
    pub requests: usize,
    /// One of so many locks is taken after others have run; 0 for none.
    pub preempted: u64,
    /// One of so many answers is an error.
    pub failures: u64,
    /// One of so many steps is a fault of a token.
    pub faults: u64,
    /// One of so many steps is an administrator's.
    pub administration: u64,
}

pub(super) struct TokenPlan {
    pub member: String,
    pub seats: usize,
    pub lanes: u32,
    pub keys: BTreeSet<usize>,
    /// The pool watches it, and replaces its connections.
    pub is_watched: bool,
}

impl SimulationPlan {
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x5eed);
        let members = 1 + random.below(4);
        let tokens = (0..members).map(|number| TokenPlan::new(number, random));
        Self {
            tokens: tokens.collect(),
            policy: *random.pick(&[
                Policy::LeastLoaded,
                Policy::RoundRobin,
                Policy::FirstAvailable,
            ]),
            queue: *random.pick(&[2, 6, 1000]),
            timeout: Duration::from_millis(*random.pick(&[100, 2_000, 20_000])),
            clients: 1 + random.below(4) as usize,
            requests: *random.pick(&[3, 8, 16]),
            preempted: *random.pick(&[0, 6, 40]),
            failures: *random.pick(&[6, 30, 200]),
            faults: *random.pick(&[30, 100, 1000]),
            administration: *random.pick(&[100, 1000]),
        }
    }

    pub fn options(&self) -> Options {
        Options {
            policy: self.policy,
            queue: self.queue,
            deadline: Duration::from_secs(5),
            ..Options::default()
        }
    }
}

impl TokenPlan {
    fn new(number: u64, random: &mut Random) -> Self {
        let mut keys: BTreeSet<_> = (0..keys::PRIVATE).filter(|_| !random.one_in(3)).collect();
        // The first member decides about the secret key.
        keys.extend((number == 0 || random.one_in(2)).then_some(keys::SECRET));
        Self {
            member: format!("hsm{number}"),
            seats: 1 + random.below(3) as usize,
            lanes: 1 + random.below(3) as u32,
            keys,
            is_watched: random.one_in(2),
        }
    }

    pub fn model(&self) -> TokenModel {
        TokenModel {
            member: self.member.clone(),
            seats: self.seats,
            lanes: self.lanes,
            has_grown: false,
            serial: 0,
            keys: self.keys.clone(),
            is_changed: false,
            false_keys: BTreeSet::new(),
            false_now: BTreeSet::new(),
            refusal: Refusal::None,
            slowness: Duration::from_millis(1),
            is_pin_held: false,
            refused: BTreeSet::new(),
            resuming: 0,
            proved: BTreeSet::new(),
        }
    }
}
