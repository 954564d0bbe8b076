//! Which lane is free, what runs on the others, and what waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hsmux_token::{Batch, Done, Error, Kind, Operation, Outcome, Request, Result};

use crate::Item;
use crate::direct::{AROUND, LONGEST};

/// The answers of one frame, or why there are none.
pub(super) type Results = Result<Vec<Result<Outcome>>>;

/// Operations share a frame while they and their answers have no more bytes: many times less than a frame holds.
const SHARED: usize = 1 << 20;

/// The same on a direct connection, whose worker takes shorter frames.
const SHARED_DIRECTLY: usize = LONGEST - AROUND;

/// Nanoseconds that the operations of a frame may take together on a direct connection. A longer wait is worth
/// another worker.
const TOGETHER: u64 = 200_000;

/// A direct connection whose answer takes longer does not count as in use: its worker may hang.
const LATE: Duration = Duration::from_millis(2);

type Listener = Box<dyn FnOnce(Error) + Send>;

/// The state of a [`RemoteToken`](super::RemoteToken); no call here blocks or does I/O.
pub(super) struct LaneTable {
    /// Lanes that carry nothing; the one that was used last is taken first.
    free: Vec<u16>,
    waiting: VecDeque<Request>,
    running: Vec<OnLane>,
    /// Operations that a lane carries at most.
    depth: usize,
    /// If a lane takes one frame at a time: how long its operations take, which limits how many share a frame.
    fastest: Option<FastestUse>,
    /// Until when the reactor is told to wake up.
    armed: Option<Instant>,
    lost: Option<Error>,
    finished: bool,
    listeners: Vec<Listener>,
}

/// Operations on a lane, in the order of their answers. Further frames are sent before the first is answered: the lane
/// does not idle between an answer and the next frame.
#[derive(Default)]
struct OnLane {
    operations: VecDeque<Running>,
    /// How many of them each frame has.
    frames: VecDeque<usize>,
    /// When the frame under way was written, on a lane that takes one at a time.
    since: Option<Instant>,
}

/// The time of the fastest recent operation, in nanoseconds. A slower one of the same kind has waited for a CPU.
struct FastestUse(u64);

impl FastestUse {
    /// A frame with so many operations was answered after this time.
    fn note(&mut self, took: Duration, count: usize) {
        let each = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / count.max(1) as u64;
        // Slower operations raise it within some dozen frames.
        self.0 = each.min(self.0.saturating_add(self.0 / 16 + 1));
    }

    /// How many operations one frame may have.
    fn fit(&self, depth: usize) -> usize {
        let fit = TOGETHER / self.0.max(1);
        usize::try_from(fit).unwrap_or(depth).clamp(1, depth)
    }
}

impl Default for FastestUse {
    /// Until an operation was timed, none share a frame.
    fn default() -> Self {
        Self(TOGETHER)
    }
}

/// An operation on its way. Without a completion it was told that it is late; the lane is busy all
/// the same.
struct Running {
    call: &'static str,
    deadline: Instant,
    done: Option<Done>,
}

/// The operations that one frame carries to a lane.
pub(super) struct LaneFrame {
    pub lane: u16,
    pub items: Vec<Item>,
}

/// A request's callback and its result. It runs once no lock is held.
pub(super) struct Completion(Done, Result<Outcome>);

impl Completion {
    pub fn run(self) {
        self.0.complete(self.1);
    }
}

/// What is left when the link has ended.
pub(super) struct Lost {
    /// That were on their way.
    pub frames: usize,
    pub outstanding: Vec<Completion>,
    pub listeners: Vec<Listener>,
}

impl LaneTable {
    pub fn new(lanes: usize, depth: usize, one_frame: bool) -> Self {
        let lanes = u16::try_from(lanes).unwrap_or(u16::MAX);
        Self {
            free: (0..lanes).rev().collect(),
            waiting: VecDeque::new(),
            running: (0..lanes).map(|_| OnLane::default()).collect(),
            depth: depth.max(1),
            fastest: one_frame.then(FastestUse::default),
            armed: None,
            lost: None,
            finished: false,
            listeners: Vec::new(),
        }
    }

    /// Takes requests out of the batch, or says why not. Answers a time to wake up at, unless an
    /// earlier one is set already: what is set stays set when its request is answered, so that
    /// traffic does not move the clock all the time.
    pub fn admit(&mut self, batch: &mut Batch) -> Result<Option<Instant>> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let first = batch.iter().map(|request| request.deadline).min();
        let sooner = first.filter(|first| self.armed.is_none_or(|armed| *first < armed));
        self.armed = sooner.or(self.armed);
        self.waiting.extend(batch.drain(..));
        Ok(sooner)
    }

    /// When to look for another lane, if a request waits for one that is in use. `None` if that is due earlier anyway.
    pub fn look_again(&mut self) -> Option<Instant> {
        if self.fastest.is_none() || self.waiting.is_empty() || self.lost.is_some() {
            return None;
        }
        let look = Instant::now() + LATE;
        let sooner = Some(look).filter(|look| self.armed.is_none_or(|armed| *look < armed));
        self.armed = sooner.or(self.armed);
        sooner
    }

    /// What a free lane is to carry next.
    pub fn next_frame(&mut self) -> Option<LaneFrame> {
        if self.waiting.is_empty() || self.lost.is_some() {
            return None;
        }
        let now = Instant::now();
        let (lane, most) = self.choose(now)?;
        let count = self.fitting(most);
        let running = &mut self.running[usize::from(lane)];
        let mut items = Vec::with_capacity(count);
        for request in self.waiting.drain(..count) {
            running.operations.push_back(Running {
                call: request.operation.call(),
                deadline: request.deadline,
                done: Some(request.done),
            });
            let left = request.deadline.saturating_duration_since(now);
            items.push(Item {
                operation: request.operation,
                remaining_us: u64::try_from(left.as_micros()).unwrap_or(u64::MAX),
                behalf: request.behalf.map(|behalf| *behalf),
            });
        }
        running.frames.push_back(count);
        running.since = Some(now);
        Some(LaneFrame { lane, items })
    }

    /// Takes out the request of this number, if it waits for a lane.
    pub fn withdraw(&mut self, number: u64) -> Option<Request> {
        let is_it = |request: &Request| {
            let behalf = request.behalf.as_ref();
            behalf.is_some_and(|behalf| behalf.request == number)
        };
        let at = self.waiting.iter().position(is_it)?;
        self.waiting.remove(at)
    }

    /// A lane for the next frame, and how many of those that wait it is to carry: they are spread over
    /// all lanes that are as good.
    fn choose(&mut self, now: Instant) -> Option<(u16, usize)> {
        if let Some(fastest) = &self.fastest {
            let depth = fastest.fit(self.depth);
            // Few operations wait for a lane that answers soon, and share its next frame.
            let answers_soon = |on: &OnLane| on.since.is_some_and(|since| now < since + LATE);
            let is_worth_it = self.waiting.len() >= depth || !self.running.iter().any(answers_soon);
            return Some((self.free.pop_if(|_| is_worth_it)?, depth));
        }
        let others = self.free.len();
        if let Some(lane) = self.free.pop() {
            let share = self.waiting.len().div_ceil(others);
            return Some((lane, share.min(self.depth)));
        }
        let carried = |(lane, on): (u16, &OnLane)| (on.operations.len(), lane);
        let (carried, lane) = (0..).zip(&self.running).map(carried).min()?;
        let share = self.waiting.len().div_ceil(self.running.len());
        let count = share.min(self.depth.checked_sub(carried)?);
        (count > 0).then_some((lane, count))
    }

    /// How many of the first `most` that wait fit in one frame, and so do their answers; one at least.
    fn fitting(&self, most: usize) -> usize {
        let first = self.waiting.iter().take(most);
        let is_direct = self.fastest.is_some();
        let bound = if is_direct { SHARED_DIRECTLY } else { SHARED };
        let sums = first.scan(0_usize, |sum, Request { operation, .. }| {
            // A use's answer is hardly longer than its request.
            let counts = if is_direct {
                operation.bytes()
            } else {
                bytes(operation)
            };
            *sum = sum.saturating_add(counts);
            Some(*sum)
        });
        sums.take_while(|sum| *sum <= bound).count().max(1)
    }

    /// Whether an answer is due on the lane.
    pub fn carries(&self, lane: u16) -> bool {
        !self.running[usize::from(lane)].frames.is_empty()
    }

    /// Takes back the last frame of a lane, which was not written.
    pub fn take_back(&mut self, lane: u16, error: &Error) -> Vec<Completion> {
        let running = &mut self.running[usize::from(lane)];
        running.since = None;
        let count = running.frames.pop_back().unwrap_or(0);
        let first = running.operations.len().saturating_sub(count);
        let completions = running
            .operations
            .drain(first..)
            .filter_map(|running| Some(Completion(running.done?, Err(error.clone()))))
            .collect();
        self.make_room(lane);
        completions
    }

    /// Frees a lane that has answered; an answer that does not fit is the peer's fault.
    pub fn take_answered(
        &mut self,
        lane: u16,
        results: Results,
    ) -> Result<Vec<Completion>, String> {
        let running = &mut self.running[usize::from(lane)];
        let wanted = running.frames.pop_front().unwrap_or(0);
        let results = match results {
            Ok(results) => results,
            Err(error) => vec![Err(error); wanted],
        };
        if let (Some(fastest), Some(since)) = (&mut self.fastest, running.since.take())
            && results.iter().all(Result::is_ok)
        {
            fastest.note(since.elapsed(), wanted);
        }
        if wanted == 0 || results.len() != wanted {
            return Err(format!("{} answers to {wanted} operations", results.len()));
        }
        let completions = running
            .operations
            .drain(..wanted)
            .zip(results)
            .filter_map(|(running, result)| Some(Completion(running.done?, result)))
            .collect();
        self.make_room(lane);
        Ok(completions)
    }

    /// A lane has one frame less than it had.
    fn make_room(&mut self, lane: u16) {
        if self.running[usize::from(lane)].frames.is_empty() {
            self.free.push(lane);
        }
    }

    /// What is late at `now`, and when the next one will be.
    pub fn expire(&mut self, now: Instant) -> (Vec<Completion>, Option<Instant>) {
        let mut late = Vec::new();
        let mut next: Option<Instant> = None;
        let mut keep = |deadline: Instant| {
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
        };
        for lane in &mut self.running {
            let begun = lane.frames.front().copied().unwrap_or(0);
            for (at, running) in lane.operations.iter_mut().enumerate() {
                let how = if at < begun { RUNS } else { WAITS };
                if running.deadline > now && running.done.is_some() {
                    keep(running.deadline);
                } else if let Some(done) = running.done.take() {
                    late.push(Completion(done, Err(overdue(running.call, how))));
                }
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(request) = self.waiting.pop_front() else {
                break;
            };
            if request.deadline > now {
                keep(request.deadline);
                self.waiting.push_back(request);
            } else {
                let error = overdue(request.operation.call(), WAITS);
                late.push(Completion(request.done, Err(error)));
            }
        }
        self.armed = next;
        (late, next)
    }

    /// The call of an operation that is running, for the error.
    pub fn running_call(&self) -> Option<&'static str> {
        self.running
            .iter()
            .filter_map(|lane| lane.operations.front())
            .map(|running| running.call)
            .next()
    }

    /// Refuses later requests; what is outstanding stays so until [`Self::finish`].
    pub fn close(&mut self, error: Error) {
        self.lost.get_or_insert(error);
    }

    /// Takes everything out, the first time.
    pub fn finish(&mut self, error: &Error) -> Option<Lost> {
        if std::mem::replace(&mut self.finished, true) {
            return None;
        }
        self.lost = Some(error.clone());
        let frames = self.running.iter_mut();
        let frames = frames.map(|lane| lane.frames.drain(..).count()).sum();
        let lanes = self.running.iter_mut();
        let running = lanes.flat_map(|lane| lane.operations.drain(..));
        let running = running.filter_map(|running| running.done);
        let waiting = self.waiting.drain(..).map(|request| request.done);
        Some(Lost {
            frames,
            outstanding: running
                .chain(waiting)
                .map(|done| Completion(done, Err(error.clone())))
                .collect(),
            listeners: std::mem::take(&mut self.listeners),
        })
    }

    pub fn lost(&self) -> Option<Error> {
        self.lost.clone()
    }

    /// Keeps a listener, or gives it back with what it is to hear.
    pub fn on_lost(&mut self, listener: Listener) -> Option<(Listener, Error)> {
        match &self.lost {
            Some(error) if self.finished => return Some((listener, error.clone())),
            _ => self.listeners.push(listener),
        }
        None
    }

    pub fn forget_listeners(&mut self) {
        self.listeners.clear();
    }
}

/// What counts towards [`SHARED`]. How long an object is that is read or copied is not known here.
fn bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Read { .. } | Operation::Copy { .. } => SHARED,
        _ => operation.bytes().saturating_add(operation.answer_bytes()),
    }
}

const RUNS: &str = "is still running";
const WAITS: &str = "was still waiting for a lane";

fn overdue(call: &str, how: &str) -> Error {
    Error::pool(Kind::Deadline, format!("{call}: it {how} at its deadline"))
}

#[cfg(test)]
mod tests;
