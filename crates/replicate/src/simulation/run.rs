//! One run: clients change objects, all fails that can, and in the end everything recovers.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_config::{ENVELOPE_LIFE, LoneKeys};
use hsmux_state::json::Name;
use hsmux_token::ck::CKM_AES_KEY_GEN;
use hsmux_token::{Made, Outcome, Result};

use super::change::{Change, Names};
use super::clients;
use super::expected::{Expected, Presence};
use super::facts::Facts;
use super::hooks::{EnteredWorld, enter};
use super::invariants;
use super::pool::SimulatedPool;
use super::world::{ChangeWorld, Death};
use crate::Coordinator;

/// No deadline passes: time does not while a step is taken.
const LONG: Duration = Duration::from_secs(86_400);

pub(super) struct ChangeRun {
    /// Before the coordinator: what that does at its end is no step.
    _here: EnteredWorld,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) pool: SimulatedPool,
    pub(super) world: Arc<ChangeWorld>,
    pub(super) expected: Expected,
    /// The change that is being carried out.
    pending: Option<(Change, Facts)>,
    /// Tokens that have lost their transport keys since they were pinned.
    pub(super) unable: BTreeSet<String>,
    /// Changes so far.
    number: u64,
    _folder: tempfile::TempDir,
}

impl ChangeRun {
    pub fn new(seed: u64) -> Self {
        let folder = ["/dev/shm", "/tmp"]
            .iter()
            .find_map(|root| tempfile::tempdir_in(root).ok());
        let folder = folder.expect("a temporary folder");
        let world = ChangeWorld::new(seed, folder.path().to_owned());
        Self {
            _here: enter(&world),
            coordinator: None,
            pool: SimulatedPool(Arc::clone(&world)),
            world,
            expected: Expected::default(),
            pending: None,
            unable: BTreeSet::new(),
            number: 0,
            _folder: folder,
        }
    }

    /// Runs so many steps and more, until everything has recovered: how many, and a sum of all that happened.
    pub fn go(mut self, steps: u64) -> (u64, u64) {
        self.open();
        self.recover();
        while self.world.state().step < steps {
            self.world.state().is_calm = false;
            for _ in 0..self.world.plan.actions {
                self.alive(Self::act);
            }
            self.world.state().is_calm = true;
            self.recover();
        }
        let state = self.world.state();
        (state.step, state.trace)
    }

    /// Lets the daemon do something. If it dies, the next one starts.
    fn alive(&mut self, work: impl FnOnce(&mut Self)) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(self))) else {
            return;
        };
        if !payload.is::<Death>() {
            resume_unwind(payload);
        }
        if let Some((change, facts)) = self.pending.take()
            && !facts.is_taken
        {
            let exceptions = self.exceptions(&change, &facts);
            let now = self.world.state().now;
            self.expected.unanswered(&change, now, &exceptions);
        }
        self.coordinator = None;
        self.next_life();
        self.open();
    }

    fn next_life(&self) {
        let mut state = self.world.state();
        state.disk.recover();
        state.is_dead = false;
    }

    /// Starts a daemon, which may die or fail at it.
    fn open(&mut self) {
        while self.coordinator.is_none() {
            let folder = self.world.state().disk.folder();
            let replicas = self.world.plan.replicas;
            let open = || Coordinator::open(&folder, replicas);
            match catch_unwind(AssertUnwindSafe(open)) {
                Ok(Ok(opened)) => {
                    let opened = opened.without_threads().with_lone_keys(LoneKeys::Refused);
                    self.coordinator = Some(opened);
                }
                Ok(Err(error)) => self.world.tell(|| format!("does not start: {error}")),
                Err(payload) if payload.is::<Death>() => self.next_life(),
                Err(payload) => resume_unwind(payload),
            }
        }
        self.world.tell(|| "the daemon has started".into());
    }

    pub(super) fn coordinator(&self) -> &Coordinator {
        self.coordinator.as_ref().expect("the daemon runs")
    }

    /// Members come and go, time passes, and a client asks for a change.
    fn act(&mut self) {
        let plan = &self.world.plan;
        let draw = |many| self.world.random(|random| random.one_in(many));
        let [leaves, is_replaced, leaps] = [plan.absences, plan.replacements, plan.leaps].map(draw);
        let [restarts, tidies] = [50, 20].map(draw);
        let members = plan.tokens.len();
        let one = self
            .world
            .random(|random| random.below(members as u64) as usize);
        {
            let mut state = self.world.state();
            let passed = state.random.below(600);
            state.now += if leaps {
                ENVELOPE_LIFE.as_secs()
            } else {
                passed
            };
        }
        if leaves {
            self.world.tell(|| format!("hsm{one} goes away"));
            self.world.state().tokens[one].disconnect();
        }
        if is_replaced {
            self.replace(one);
        }
        if restarts {
            self.restart();
        }
        if tidies {
            self.coordinator().tidy(true);
        }
        for member in 0..members {
            let serves = self.world.state().tokens[member].serves();
            if !serves && self.world.random(|random| random.one_in(3)) {
                self.connect(member);
            }
        }
        let number = self.next_number();
        let change = self
            .world
            .random(|random| clients::ask(&self.expected, random, number));
        let _ = self.change(&change);
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A token loses all, or another one takes its place.
    fn replace(&mut self, member: usize) {
        let number = self.next_number();
        let is_another = self.world.random(|random| random.one_in(2));
        let mut state = self.world.state();
        let token = &mut state.tokens[member];
        let old = token.serial.clone();
        if is_another {
            token.replace(&format!("{}/{number}", token.member));
        } else {
            token.initialise();
        }
        let serial = token.serial.clone();
        drop(state);
        self.world.tell(|| format!("{old} is replaced by {serial}"));
        if serial == old {
            self.unable.insert(old.clone());
        }
        self.expected.replaced(&old, &serial);
    }

    /// The daemon ends, and starts again.
    fn restart(&mut self) {
        self.world.tell(|| "the daemon ends".into());
        drop(self.coordinator.take());
        for token in &mut self.world.state().tokens {
            token.disconnect();
        }
        self.open();
    }

    /// A member connects, and catches up before it serves.
    fn connect(&mut self, member: usize) {
        self.world.state().tokens[member].connect();
        let is_in = self.catch_up(member);
        self.world.state().tokens[member].is_in = is_in;
    }

    /// Says whether the member can serve.
    fn catch_up(&mut self, member: usize) -> bool {
        let token = self.pool.member(member);
        let told = self.coordinator().catch_up(&self.pool, &token);
        if let Ok(told) = &told {
            let there = told.snapshot.objects.iter().map(|object| object.id);
            let shown = there.filter(|id| !told.tombstoned.contains(id));
            self.world.state().tokens[member].shown = shown.collect();
        }
        self.world.tell(|| match &told {
            Ok(told) => format!("{} is back: {:?}", token.name, told.failed),
            Err(error) => format!("{} is back: {error}", token.name),
        });
        self.note_holders();
        told.is_ok()
    }

    /// A client's change, and what its answer promises.
    fn change(&mut self, change: &Change) -> Result<Outcome> {
        let facts = self.facts(change);
        let before = self.holders(change, &facts);
        self.world.tell(|| format!("asked for: {change:?}"));
        self.world.forget_failures();
        self.pending = Some((change.clone(), facts.clone()));
        let operation = change.operation();
        let deadline = Instant::now() + LONG;
        let answer = self.coordinator().change(&self.pool, &operation, deadline);
        self.pending = None;
        self.world
            .tell(|| format!("answer: {}", super::faults::word(&answer)));
        self.world.trace(answer.is_ok());
        let exceptions = self.exceptions(change, &facts);
        let now = self.world.state().now;
        if facts.is_taken && answer.is_ok() {
            self.world
                .fail(&format!("{change:?} is done, and the name is taken"));
        }
        if Self::is_unconfirmed(&answer) {
            self.expected.done(change, &[], now, &exceptions);
        } else if let Ok(outcome) = &answer {
            let made: &[Made] = match outcome {
                Outcome::Objects(made) => made,
                _ => &[],
            };
            self.expected.done(change, made, now, &exceptions);
            for reached in self.promised(change, made, &facts, before) {
                let coordinator = self.coordinator();
                invariants::is_reached(&self.world, coordinator, &self.expected, change, reached);
            }
        } else if self.is_unclear(change, &answer) && !facts.is_taken {
            self.expected.unanswered(change, now, &exceptions);
        }
        self.note_holders();
        answer
    }

    fn note_holders(&mut self) {
        let coordinator = self.coordinator.as_ref().expect("the daemon runs");
        let state = self.world.state();
        for token in &state.tokens {
            // It may still have an earlier object of that name.
            let owed: BTreeSet<Name> = coordinator.journal.read(|state| {
                let owed = state.owed.get(&token.serial).into_iter();
                let works = owed.flat_map(|owed| owed.values().flatten());
                works.flat_map(|work| work.0.objects()).map(Name).collect()
            });
            for (object, _) in token.holdings() {
                let known = self.expected.objects.get_mut(&object.id);
                if let Some(known) = known.filter(|_| !owed.contains(&Name(object.id)))
                    && !known.held.contains(&token.serial)
                {
                    known.held.insert(token.serial.clone());
                }
            }
        }
    }

    /// All members return and do what they owe; then everything is as it was promised.
    fn recover(&mut self) {
        let members = self.world.plan.tokens.len();
        let is_first = self.number == 0;
        let anew = std::mem::take(&mut self.unable);
        if !anew.is_empty() {
            self.world.state().disk.forget_pins();
            self.restart();
        }
        for member in 0..members {
            if !self.world.state().tokens[member].serves() {
                self.connect(member);
            }
        }
        // A change that could not be decided is at the next one.
        let is_open = self
            .coordinator()
            .journal
            .read(|state| !state.open.is_empty());
        if !anew.is_empty() || is_first || is_open {
            let names = Names::new(&format!("enrols {}", self.next_number()), b"");
            let mechanism = CKM_AES_KEY_GEN;
            if let Err(error) = self.change(&Change::Generate { mechanism, names }) {
                self.world
                    .fail(&format!("no key is made by healthy tokens: {error}"));
            }
        }
        for _ in 0..3 {
            for member in 0..members {
                self.catch_up(member);
            }
        }
        let coordinator = self.coordinator.as_ref().expect("the daemon runs");
        for member in 0..members {
            let serial = self.world.state().tokens[member].serial.clone();
            if coordinator.owes(&serial) {
                invariants::is_unpayable(&self.world, coordinator, &serial);
            }
        }
        coordinator.tidy(true);
        self.world.tell(|| "all is well".into());
        invariants::check(&self.world, coordinator, &mut self.expected);
        let known = &mut self.expected.objects;
        known.retain(|id, object| {
            object.presence == Presence::There || id.class == hsmux_token::Class::DATA
        });
    }
}
