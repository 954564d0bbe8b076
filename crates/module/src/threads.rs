//! The threads behind `submit`, at most one for each session, started on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{Batch, Done, Error, Kind, Outcome, Request, Result, Token};

use crate::ModuleToken;
use crate::usual_durations::Task;

/// Waiting requests and their threads.
pub(crate) struct Threads {
    state: Mutex<ThreadState>,
    wake: Condvar,
    token: Weak<ModuleToken>,
}

struct ThreadState {
    waiting: VecDeque<Request>,
    /// The callback of each thread's running request.
    running: Vec<Option<Done>>,
    idle: usize,
    started: usize,
    /// Set once the token is closed or aborted.
    over: Option<Error>,
}

impl Threads {
    pub(crate) fn new(token: Weak<ModuleToken>, most: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ThreadState {
                waiting: VecDeque::new(),
                running: std::iter::repeat_with(|| None).take(most).collect(),
                idle: 0,
                started: 0,
                over: None,
            }),
            wake: Condvar::new(),
            token,
        })
    }

    /// Queues requests for the next free thread.
    pub(crate) fn submit(self: &Arc<Self>, batch: Batch) {
        let mut state = self.state.lock();
        if let Some(error) = state.over.clone() {
            drop(state);
            return fail(batch.into_iter().map(|r| r.done), &error);
        }
        let new = batch.len();
        state.waiting.extend(batch);
        let mut problem = None;
        while state.started < state.running.len() && state.idle < state.waiting.len() {
            let (threads, index) = (Arc::clone(self), state.started);
            let thread = std::thread::Builder::new().name("hsmux-module".into());
            if let Err(e) = thread.spawn(move || threads.serve(index)) {
                problem = Some(e);
                break;
            }
            state.started += 1;
            state.idle += 1;
        }
        match problem {
            Some(e) if state.started == 0 => {
                let stranded = std::mem::take(&mut state.waiting);
                drop(state);
                let error =
                    Error::token(Kind::Environment, format!("no thread for the token: {e}"));
                fail(stranded.into_iter().map(|r| r.done), &error);
            }
            _ => drop(state),
        }
        (0..new).for_each(|_| self.wake.notify_one());
    }

    /// Fails all waiting and running requests with `error`.
    pub(crate) fn abort(&self, error: &Error) {
        let mut state = self.state.lock();
        state.over = Some(error.clone());
        let waiting = std::mem::take(&mut state.waiting);
        let running = state.running.iter_mut().filter_map(Option::take);
        let running: Vec<_> = running.collect();
        drop(state);
        self.wake.notify_all();
        fail(waiting.into_iter().map(|r| r.done).chain(running), error);
    }

    /// One thread, counted as idle at its start.
    fn serve(&self, index: usize) {
        while let Some(request) = self.next(index) {
            // The token closes with its last reference, which may be this one.
            let Some(token) = self.token.upgrade() else {
                return;
            };
            let task = Task::of(&request.0);
            let result = run(&token, &request.0, request.1, task.as_ref());
            self.finish(index, result);
        }
    }

    fn next(&self, index: usize) -> Option<(hsmux_token::Operation, Instant)> {
        let mut state = self.state.lock();
        loop {
            if state.over.is_some() {
                return None;
            }
            if let Some(request) = state.waiting.pop_front() {
                state.idle -= 1;
                state.running[index] = Some(request.done);
                return Some((request.operation, request.deadline));
            }
            self.wake.wait(&mut state);
        }
    }

    fn finish(&self, index: usize, result: Result<Outcome>) {
        let mut state = self.state.lock();
        state.idle += 1;
        let done = state.running[index].take();
        drop(state);
        // `None` if abort has already called it.
        if let Some(done) = done {
            done.complete(result);
        }
    }
}

fn run(
    token: &ModuleToken,
    operation: &hsmux_token::Operation,
    deadline: Instant,
    task: Option<&Task>,
) -> Result<Outcome> {
    let begun = Instant::now();
    if begun >= deadline {
        return Err(too_late(operation));
    }
    let result = match token.run_in_stream(operation) {
        Some(outcome) => Ok(outcome),
        None => token.execute(operation, deadline),
    };
    if let Some(task) = task {
        token.usual.note(task, begun);
    }
    result
}

/// The error of an operation whose deadline has passed before it began.
pub(crate) fn too_late(operation: &hsmux_token::Operation) -> Error {
    let message = format!("{}: the deadline passed in the queue", operation.call());
    Error::token(Kind::Deadline, message)
}

fn fail(all: impl Iterator<Item = Done>, error: &Error) {
    for done in all {
        done.complete(Err(error.clone()));
    }
}
