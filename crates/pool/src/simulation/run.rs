//! One run of the simulation: a pool from its start, through its faults, to its end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::administrator;
use super::clients::Client;
use super::executor::Executor;
use super::plan::SimulationPlan;
use super::token::seats;
use super::world::{TOLERANCE, World};
use crate::pool::Pool;
use crate::{ReplicaState, SeatState};

pub(super) struct Run {
    seed: u64,
    step: u64,
    executor: Arc<Executor>,
    world: Arc<World>,
    pool: Arc<OnceLock<Arc<Pool>>>,
    clients: Vec<Client>,
}

const KEEPER: &str = "hsmux-keeper";

/// A pool recovers from everything within this time, and this many steps.
const RECOVERS_WITHIN: Duration = Duration::from_secs(600);
const RECOVERS_IN: u64 = 200_000;

impl Run {
    pub fn new(seed: u64) -> Self {
        let plan = SimulationPlan::new(seed);
        let executor = Executor::new(seed, plan.preempted);
        let world = World::new(Arc::clone(&executor), plan);
        let pool = Arc::new(OnceLock::new());
        let (started, of_pool) = (Arc::clone(&pool), Arc::clone(&world));
        executor.spawn(
            "start",
            Box::new(move || {
                let all = 0..of_pool.plan.tokens.len();
                let seats = all.flat_map(|token| seats(&of_pool, token)).collect();
                let pool = Pool::start(of_pool.plan.options(), seats).expect("a thread");
                let _ = of_pool.pool.set(Arc::downgrade(&pool));
                let _ = started.set(pool);
            }),
        );
        Self {
            seed,
            step: 0,
            executor,
            world,
            pool,
            clients: Vec::new(),
        }
    }

    /// So many steps with faults, and as many as it takes to heal. Answers all of them, and the trace.
    pub fn go(mut self, steps: u64) -> (u64, u64) {
        while self.step < steps {
            self.act();
            self.check();
        }
        self.heal();
        self.end();
        (self.step, self.executor.trace_so_far())
    }

    /// One step.
    fn act(&mut self) {
        self.step += 1;
        let plan = &self.world.plan;
        let (what, faults, administration) = self.executor.random(|random| {
            (
                random.below(16),
                random.one_in(plan.faults),
                random.one_in(plan.administration),
            )
        });
        self.executor.trace(what);
        if faults && self.step > 200 {
            return self.world.fault();
        }
        if administration && self.executor.count(Some("administrator")) < 2 && self.has_clients() {
            let pool = self.pool.get().expect("started");
            return administrator::command(&self.world, pool);
        }
        let acted = match what {
            0..5 => self.answer(true),
            5..8 => self.ask(),
            8 => self.go_away(),
            9..14 => self.executor.run_one(|_| true),
            _ => false,
        };
        if !acted && !self.pass_time() {
            self.executor.run_one(|_| true);
        }
    }

    fn has_clients(&mut self) -> bool {
        if let Some(pool) = self.pool.get()
            && self.clients.is_empty()
        {
            let all = 0..self.world.plan.clients;
            self.clients = all.map(|number| Client::new(pool, number)).collect();
        }
        !self.clients.is_empty()
    }

    /// A client asks for something.
    fn ask(&mut self) -> bool {
        let room = self.world.state().requests.len() < self.world.plan.requests;
        if !room || !self.has_clients() {
            return false;
        }
        let pool = self.pool.get().expect("started");
        let count = self.clients.len() as u64;
        let client = self.executor.random(|random| random.below(count)) as usize;
        self.clients[client].ask(&self.world, pool, client);
        true
    }

    /// A client no longer wants something.
    fn go_away(&mut self) -> bool {
        let (one_of, client, connection) = self
            .executor
            .random(|random| (random.below(16), random.number(), random.one_in(20)));
        if connection && self.has_clients() {
            let client = (client % self.clients.len() as u64) as usize;
            self.clients[client].reconnect();
            return true;
        }
        let claim = self.world.state().requests.take_claim(one_of as usize);
        claim.is_some()
    }

    /// A token answers, or the pool is told of a connection's end.
    fn answer(&self, with_faults: bool) -> bool {
        let loss_first = self.executor.random(|random| random.one_in(3));
        let loss = loss_first.then(|| self.world.tell_loss()).flatten();
        let told = loss.or_else(|| self.world.answer_one(with_faults));
        let told = told.or_else(|| self.world.tell_loss());
        let Some(told) = told else { return false };
        let as_task =
            self.world.plan.preempted > 0 && self.executor.random(|random| random.one_in(3));
        if as_task {
            self.executor.spawn("reader", told);
            self.executor.run_one(|name| name == "reader");
        } else {
            told();
        }
        true
    }

    /// Time passes, but not while the keeper or a lock is due.
    fn pass_time(&self) -> bool {
        if self.executor.is_one_preempted() {
            return false;
        }
        let now = self.world.now();
        let limit = self.executor.wakes_at(KEEPER);
        if limit.is_some_and(|limit| limit <= now) {
            self.executor.run_one(|name| name == KEEPER);
            return true;
        }
        let limit = limit.map_or(Duration::MAX, |limit| limit + TOLERANCE.mul_f64(0.9) - now);
        let (scale, to_next, share) = self
            .executor
            .random(|random| (random.below(24), random.one_in(3), random.below(1000)));
        let next = self.executor.next_wake().filter(|_| to_next);
        let time = match next {
            Some(next) => next - now + Duration::from_nanos(share),
            None => Duration::from_nanos(100 << scale) + Duration::from_nanos(share),
        };
        let time = time.min(limit);
        self.executor.trace(time.as_nanos() as u64);
        self.executor.advance(time);
        true
    }

    fn check(&self) {
        self.world.check_deadlines();
        if let Some(pool) = self.pool.get()
            && !self.executor.is_one_preempted()
        {
            self.world.check_lanes(&pool.core);
        }
        if let Some(failure) = self.executor.failure() {
            self.report(&failure);
        }
    }

    fn report(&self, failure: &str) -> ! {
        let tasks = self.executor.tasks().join("\n  ");
        let seats = self.pool.get().map(|pool| pool.status().seats);
        for seat in seats.into_iter().flatten() {
            let (state, error) = (seat.state, seat.last_error);
            eprintln!(
                "  {} {state:?} {} running: {error:?}",
                seat.name, seat.in_flight
            );
        }
        panic!(
            "seed {}, step {}, after {:?}: {failure}\n  {tasks}",
            self.seed,
            self.step,
            self.executor.age()
        );
    }

    /// All faults end. Every request is answered, and every key serves again.
    fn heal(&mut self) {
        while !self.has_clients() {
            self.quiet_step();
        }
        let all = self.executor.random(|random| random.one_in(2));
        let claims = self.world.state().requests.claims();
        drop(claims);
        self.world.heal(all);
        let pool = Arc::clone(self.pool.get().expect("started"));
        while self.executor.count(Some("administrator")) > 0 {
            self.quiet_step();
        }
        for number in 0..self.world.plan.tokens.len() {
            administrator::resume(&self.world, &pool, number);
        }
        let (begun, since) = (self.world.now(), self.step);
        while let Some(missing) = self.missing(&pool) {
            let is_late = self.world.now() > begun + RECOVERS_WITHIN;
            if is_late || self.step > since + RECOVERS_IN {
                self.report(&format!("it does not recover: {missing}"));
            }
            self.quiet_step();
        }
    }

    /// A step without faults.
    fn quiet_step(&mut self) {
        self.step += 1;
        let what = self.executor.random(|random| random.below(3));
        let acted = match what {
            0 => self.answer(false) || self.executor.run_one(|_| true),
            1 => self.executor.run_one(|_| true) || self.answer(false),
            _ => false,
        };
        if !acted && !self.pass_time() {
            self.executor.run_one(|_| true);
        }
        self.check();
    }

    /// What has not recovered yet.
    fn missing(&self, pool: &Pool) -> Option<String> {
        if self.executor.is_one_preempted() {
            return Some("a lock".into());
        }
        let waiting = self.world.state().requests.len();
        if waiting > 0 {
            return Some(format!("{waiting} requests wait"));
        }
        for record in pool.core.records() {
            let state = record.life.lock();
            if !matches!(state.state, crate::record::LifeState::InService) {
                return Some(format!("{} is {:?}", record.name, state.state));
            }
        }
        let catalogue = pool.catalogue();
        for (number, object) in super::keys::objects().iter().enumerate() {
            for (token, plan) in self.world.plan.tokens.iter().enumerate() {
                let replicas = catalogue.entries.get(&object.id);
                let replicas = replicas.map_or(&[][..], |entry| &entry.replicas);
                let serving = replicas.iter().filter(|replica| {
                    *replica.member == *plan.member && replica.state == ReplicaState::Serving
                });
                let wanted = plan.seats * usize::from(plan.keys.contains(&number));
                if serving.count() != wanted {
                    let states: Vec<_> = replicas.iter().map(|r| (&r.seat, &r.state)).collect();
                    return Some(format!("key {number} on token {token}: {states:?}"));
                }
            }
        }
        None
    }

    /// The pool stops, and all of its threads end.
    fn end(&mut self) {
        let pool = self.pool.get().expect("started");
        let all_serve = pool
            .status()
            .seats
            .iter()
            .all(|seat| seat.state == SeatState::InService);
        debug_assert!(all_serve);
        pool.stop();
        let since = self.step;
        while self.executor.count(None) > 0 {
            if self.step > since + RECOVERS_IN {
                self.report("its threads do not end");
            }
            self.step += 1;
            if !self.executor.run_one(|_| true) && !self.answer(false) {
                self.executor.advance(Duration::from_secs(1));
            }
        }
        self.clients.clear();
        self.executor.end();
    }
}
