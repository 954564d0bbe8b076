//! All that a simulation consists of, apart from the code under test.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;

use hsmux_token::sync::{Mutex, MutexGuard};
use hsmux_token::{Error, Kind, Operation, Outcome, Result, Scope, TokenInfo};

use super::disk::Disk;
use super::faults::{StepFault, word};
use super::plan::SeedPlan;
use super::token_model::TokenModel;
use hsmux_token::fake::Random;

/// The payload of the unwinding that ends a daemon.
pub(super) struct Death;

pub(super) struct ChangeWorld {
    pub plan: SeedPlan,
    seed: u64,
    /// `TRACE` is set: events are printed.
    is_told: bool,
    state: Mutex<WorldState>,
}

pub(super) struct WorldState {
    pub random: Random,
    /// Operations of tokens, and lines of the journal.
    pub step: u64,
    /// Sums up all events.
    pub trace: u64,
    /// In seconds after 1970.
    pub now: u64,
    /// Nothing goes wrong for now.
    pub is_calm: bool,
    /// The daemon has died: what its destructors do has no effect.
    pub is_dead: bool,
    pub tokens: Vec<TokenModel>,
    pub disk: Disk,
    pub failures: Failures,
}

/// Operations that have failed since a change began.
#[derive(Default)]
pub(super) struct Failures {
    /// One has before the change's intent was in the journal.
    pub is_plan_spoilt: bool,
    is_planned: bool,
    /// A token has refused a request.
    pub is_refused: bool,
}

impl Failures {
    /// Notes an error, or that the connection has ended.
    fn note(&mut self, error: Option<&Error>) {
        // That an object is not there is an answer.
        let is_failure = error.is_none_or(|error| error.kind() != Kind::UnknownObject);
        self.is_plan_spoilt |= is_failure && !self.is_planned;
        self.is_refused |= error.is_some_and(|error| error.scope() == Scope::Request);
    }
}

impl ChangeWorld {
    pub fn new(seed: u64, folder: PathBuf) -> Arc<Self> {
        let plan = SeedPlan::new(seed);
        let tokens = plan.tokens.iter().enumerate();
        let tokens = tokens.map(|(number, plan)| TokenModel::new(number, plan));
        Arc::new(Self {
            seed,
            is_told: std::env::var_os("TRACE").is_some(),
            state: Mutex::new(WorldState {
                random: Random::new(seed),
                step: 0,
                trace: 0,
                now: 1_000_000,
                is_calm: true,
                is_dead: false,
                tokens: tokens.collect(),
                disk: Disk::new(folder),
                failures: Failures::default(),
            }),
            plan,
        })
    }

    pub fn state(&self) -> MutexGuard<'_, WorldState> {
        self.state.lock()
    }

    pub fn random<R>(&self, draw: impl FnOnce(&mut Random) -> R) -> R {
        draw(&mut self.state().random)
    }

    /// An assertion failed.
    pub fn fail(&self, message: &str) -> ! {
        let step = self.state().step;
        panic!("seed {}, step {step}: {message}", self.seed)
    }

    /// Prints an event, if `TRACE` is set.
    pub fn tell(&self, event: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:6} {}", self.state().step, event());
        }
    }

    /// Adds to the trace.
    pub fn trace(&self, event: impl Hash) {
        let mut state = self.state();
        let mut hasher = DefaultHasher::new();
        (state.trace, event).hash(&mut hasher);
        state.trace = hasher.finish();
    }

    /// A change begins.
    pub fn forget_failures(&self) {
        self.state().failures = Failures::default();
    }

    pub fn info(&self, token: usize) -> Arc<TokenInfo> {
        Arc::clone(&self.state().tokens[token].info)
    }

    /// One operation by a connection to a token: a step.
    pub fn execute(&self, token: usize, connection: u64, operation: &Operation) -> Result<Outcome> {
        self.step(token, connection, operation.call(), |state, fault| {
            let model = &mut state.tokens[token];
            match fault {
                StepFault::Error { error, has_effect } => {
                    if has_effect {
                        model.run(operation, &mut state.random)?;
                    }
                    Err(error)
                }
                StepFault::Death { has_effect: false } => Err(Error::lost("dead")),
                StepFault::Death { .. } | StepFault::None => {
                    model.run(operation, &mut state.random)
                }
            }
        })
    }

    /// A step of a token: `run` has it do something, with or without a fault.
    pub fn step(
        &self,
        token: usize,
        connection: u64,
        call: &'static str,
        run: impl FnOnce(&mut WorldState, StepFault) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let mut state = self.state();
        let model = &state.tokens[token];
        if state.is_dead || model.connection != connection || model.is_ended {
            state.failures.note(None);
            return Err(Error::lost("the connection has ended"));
        }
        let serial = model.serial.clone();
        state.step += 1;
        let fault = state.fault_of_operation(&self.plan, call);
        let is_death = matches!(fault, StepFault::Death { .. });
        let result = run(&mut state, fault);
        if let Err(error) = &result {
            state.tokens[token].is_ended |= error.ends_connection();
            state.failures.note(Some(error));
        }
        drop(state);
        self.trace((call, token, result.is_ok()));
        self.tell(|| {
            let dies = if is_death {
                ", and the daemon dies"
            } else {
                ""
            };
            format!("{serial}: {call}: {}{dies}", word(&result))
        });
        if is_death {
            self.die();
        }
        result
    }

    /// A line of the journal is about to be written: a step.
    pub fn writes(&self, line: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if state.is_dead {
            return Ok(());
        }
        state.step += 1;
        let fault = state.fault_of_line(&self.plan);
        drop(state);
        let record = String::from_utf8_lossy(line);
        let record = record.split('"').nth(3).unwrap_or("?");
        self.trace((record, matches!(fault, StepFault::None)));
        if record == "intent" {
            self.state().failures.is_planned = true;
        }
        match fault {
            StepFault::None => {
                self.tell(|| format!("journal: {record}"));
                Ok(())
            }
            StepFault::Error { error, .. } => {
                self.tell(|| format!("journal: {record}: {error}"));
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            StepFault::Death { .. } => {
                self.tell(|| format!("journal: the daemon dies before {record}"));
                self.die()
            }
        }
    }

    /// The journal has this length now.
    pub fn written(&self, len: u64, is_synced: bool) {
        let mut state = self.state();
        if state.is_dead {
            return;
        }
        state.disk.written(len, is_synced);
        if let StepFault::Death { .. } = state.fault_of_line(&self.plan) {
            drop(state);
            self.tell(|| "journal: the daemon dies after it".into());
            self.die();
        }
    }

    /// The daemon dies, with all connections and session objects.
    fn die(&self) -> ! {
        let mut state = self.state();
        let state = &mut *state;
        state.is_dead = true;
        state.disk.freeze(&mut state.random);
        for token in &mut state.tokens {
            token.disconnect();
        }
        resume_unwind(Box::new(Death))
    }
}
