//! The work of one seat, and its speed.

use std::time::{Duration, Instant};

use super::Term;
use super::answer_interval::AnswerInterval;
use super::hang_detector::AnswerState;
use super::spread::Spread;
use crate::clock;
use crate::owner::Owner;

/// The properties of a seat that the scheduler needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Operations that it runs at a time.
    pub lanes: usize,
    pub weight: u32,
    /// One operation may take this long, times [`Term::patience`]; see [`super::hang_detector`].
    pub timeout: Duration,
    /// Seats with the same number are workers of one token.
    pub member: usize,
    /// True for a worker process. Requests sent to it while its lanes are busy wait there. The way to it costs as much
    /// as a fast operation.
    pub far: bool,
    /// True for the pool of another host. A request that waits there for one token may be overtaken by requests for
    /// others.
    pub pool: bool,
}

/// A seat in service.
pub(super) struct SeatLoad<W, C> {
    /// Of the connection; never used twice.
    pub generation: u64,
    pub connection: C,
    pub capacity: Capacity,
    pub running: Vec<ActiveRun<W>>,
    pub answers: AnswerState,
    /// Credit of the round-robin policy.
    pub credit: i64,
    /// Moving average of the time that one operation takes, in nanoseconds.
    latency: u64,
    /// The number of groups in the average, up to [`MEMORY`].
    samples: u64,
    /// Its last operation failed. Unlike a seat without samples it is not tried again soon.
    failed: bool,
    /// The same divided by the weight.
    weighted: u64,
    /// Operations that came back together last.
    group: Group,
    quickest: Quickest,
    pub answer_interval: AnswerInterval,
    /// When it last finished an operation.
    pub last: Instant,
    /// The durations of the operations that it has answered.
    pub spread: Spread,
}

pub(super) struct ActiveRun<W> {
    /// They grow.
    pub number: u64,
    pub started: Instant,
    /// The number of operations that ran when it began. `None` if some of them were half done.
    among: Option<usize>,
    /// It began when another one ended.
    behind: bool,
    /// It may take long, so no request is sent to wait behind it.
    pub slow: bool,
    owner: Owner,
    /// How long it may take.
    pub allowed: Duration,
    /// At this time the caller is answered, even if the token is still working.
    pub deadline: Instant,
    /// `None` if the caller runs it itself, or was answered.
    pub work: Option<W>,
}

/// Operations that were answered together. The measured time of the first is the time of all.
#[derive(Default)]
struct Group {
    nanos: u64,
    count: u64,
    /// The average without it.
    before: u64,
}

/// The shortest recent operation. Longer ones may only show that the machine is busy.
struct Quickest {
    /// Of this window and of the one before, in nanoseconds.
    nanos: [u64; 2],
    /// Groups of this window.
    seen: u32,
}

/// How an operation ended, as far as the load is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunOutcome {
    /// The token did its work, even if it said no.
    Served,
    /// The token did work of the pool's own, which does not count as speed.
    PoolWork,
    /// The token failed. That it failed fast must not draw more requests.
    Failed,
}

/// An average counts half after it was not renewed for 2^32 ns (4.3 s), so that a seat that once
/// was slow is tried again. One of few operations says little and fades sooner, half as long for each that is missing.
const FADING: u64 = 32;
/// How many operations an average looks back; the first ones weigh the same, so that one that was slow
/// because it was the first is soon forgotten.
const MEMORY: u64 = 8;
/// How many groups the quickest one is looked for in, or twice as many.
const WINDOW: u32 = 32;
/// Nanoseconds between two that were answered together.
const TOGETHER: u64 = 4000;
/// Nanoseconds below which tokens count as equally fast.
const FLOOR: u64 = 1000;
/// An operation that begins this part of the usual time after another one ended has taken its lane.
const AT_ONCE: u32 = 64;
/// Operations that a lane takes at once, at most.
pub const DEEPEST: usize = 16;
/// Nanoseconds below which an operation is not worth the way to a worker and back that its lane
/// would idle for.
const FAST: u64 = 500_000;

/// Nanoseconds: the way to a token by the daemon is a tenth of it or less where it takes longer.
const SHORT: u64 = 1_000_000;

impl<W, C> SeatLoad<W, C> {
    pub fn new(generation: u64, connection: C, capacity: Capacity) -> Self {
        let capacity = Capacity {
            lanes: capacity.lanes.max(1),
            weight: capacity.weight.clamp(1, 1000),
            ..capacity
        };
        Self {
            generation,
            connection,
            running: Vec::with_capacity(2 * capacity.lanes.min(64)),
            capacity,
            credit: 0,
            latency: 0,
            answers: AnswerState::default(),
            samples: 0,
            failed: false,
            group: Group::default(),
            quickest: Quickest {
                nanos: [u64::MAX; 2],
                seen: 0,
            },
            weighted: FLOOR,
            answer_interval: AnswerInterval::default(),
            last: clock::now(),
            spread: Spread::default(),
        }
    }

    pub fn free(&self) -> bool {
        self.takes_more() && self.running.len() < self.capacity.lanes
    }

    /// True if this owner has all lanes but the last free one, which long operations of the same owner then cannot
    /// have.
    pub fn keeps_last_lane(&self, owner: Owner) -> bool {
        let (lanes, running) = (self.capacity.lanes, self.running.len());
        lanes > 1 && running + 1 == lanes && self.running.iter().all(|run| run.owner == owner)
    }

    /// True if new keys have all lanes but one. Making a key may take minutes, so the last lane is for other
    /// operations.
    pub fn keeps_last_lane_from_new_keys(&self) -> bool {
        let lanes = self.capacity.lanes;
        let slow = self.running.iter().filter(|run| run.slow).count();
        lanes > 1 && slow + 1 >= lanes
    }

    fn takes_more(&self) -> bool {
        !self.answers.one_is_waited_for()
    }

    /// True if a request may be sent to wait behind the running ones. They are done before a request that is sent later
    /// would arrive. With `deep`, a lane may have more than one waiting request.
    pub fn takes_ahead(&self, deep: bool) -> bool {
        let lanes = self.capacity.lanes;
        let depth = if deep {
            self.depth()
        } else {
            self.depth().min(2)
        };
        self.capacity.far
            && self.takes_more()
            && (lanes..lanes * depth).contains(&self.running.len())
            && !self.running.iter().any(|run| run.slow)
    }

    /// True if it serves, and its operations are so short that the way to it matters.
    pub fn is_short(&self) -> bool {
        self.takes_more() && self.capacity.lanes > 0 && self.was_short()
    }

    /// True if one of its recent operations was short.
    pub fn was_short(&self) -> bool {
        let [now, before] = self.quickest.nanos;
        now.min(before) < SHORT
    }

    /// The number of operations that a lane takes at once. None of them waits there for longer than [`FAST`].
    pub(super) fn depth(&self) -> usize {
        let [now, before] = self.quickest.nanos;
        match now.min(before).min(self.group.each()) {
            each @ 1..FAST => ((FAST / each) as usize).clamp(2, DEEPEST),
            _ => 1,
        }
    }

    /// True if an operation runs much longer than usual. Requests that other seats can serve should not wait behind it.
    pub fn is_held_up(&self, now: Instant) -> bool {
        let since = |run: &ActiveRun<W>| now.saturating_duration_since(run.started);
        let longest = self.running.iter().map(since).max();
        longest.is_some_and(|longest| longest.as_nanos() > u128::from(2 * FAST))
    }

    /// Takes no new requests.
    pub fn drain(&mut self) {
        self.capacity.lanes = 0;
    }

    /// latency / weight × (pending + 1): the lower, the better.
    pub fn cost(&self, now: Instant) -> u64 {
        let missing = if self.failed {
            0
        } else {
            MEMORY - self.samples
        };
        // A running operation will show whether the seat is as slow as it seemed.
        let since = if missing > 0 && !self.running.is_empty() {
            Duration::ZERO
        } else {
            now.saturating_duration_since(self.last)
        };
        let idle = since.as_nanos() as u64 >> (FADING - missing);
        let latency = self.weighted >> idle.min(u64::from(u64::BITS) - 1);
        latency.max(1) * (self.running.len() as u64 + 1)
    }

    pub fn start(&mut self, number: u64, now: Instant, term: Term, work: Option<W>) {
        if self.running.is_empty() {
            self.answers.expected_from(now);
        }
        let since = now.saturating_duration_since(self.last);
        let none_half_done = self.running.is_empty() || since <= self.latency() / AT_ONCE;
        self.running.push(ActiveRun {
            number,
            started: now,
            among: none_half_done.then_some(self.running.len() + 1),
            behind: !self.free(),
            slow: term.is_slow(),
            owner: term.cost.owner,
            allowed: self.capacity.timeout * term.patience,
            deadline: term.deadline,
            work,
        });
    }

    /// Ends a run. Answers its work, if its caller was not answered yet.
    pub fn finish(&mut self, number: u64, now: Instant, outcome: RunOutcome) -> Option<W> {
        let at = self.running.iter().position(|run| run.number == number)?;
        let run = self.running.swap_remove(at);
        self.note_answer(number, now);
        if run.slow || outcome == RunOutcome::PoolWork {
            // The durations of operations that ran beside it show nothing.
            self.running.iter_mut().for_each(|other| other.among = None);
        }
        let began = if run.behind {
            run.started.max(self.last)
        } else {
            run.started
        };
        let took = now.saturating_duration_since(began).as_nanos() as u64;
        match outcome {
            RunOutcome::PoolWork => return run.work,
            RunOutcome::Served => {
                self.failed = false;
                self.spread.add(took);
                self.learn(took);
                if let Some(among) = run.among.filter(|_| !run.slow) {
                    let whole = now.saturating_duration_since(run.started);
                    self.answer_interval
                        .learn(whole, among, self.capacity.lanes, now);
                }
            }
            RunOutcome::Failed => {
                let slower = self.latency.max(took).max(FLOOR).saturating_mul(2);
                self.latency = slower.min(1 << 34);
                self.failed = true;
            }
        }
        self.weighted = self.latency.max(FLOOR) / u64::from(self.capacity.weight);
        self.last = now;
        run.work
    }

    fn learn(&mut self, took: u64) {
        if took >= TOGETHER || self.group.count == 0 {
            self.samples = MEMORY.min(self.samples + 1);
            self.quickest.note(self.group.each());
            self.group = Group {
                before: self.latency,
                ..Group::default()
            };
        }
        self.group.nanos += took;
        self.group.count += 1;
        let (before, each) = (self.group.before, self.group.each());
        self.latency = before - before / self.samples + each / self.samples;
    }

    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency)
    }
}

impl Group {
    /// Nanoseconds; without an operation the most.
    fn each(&self) -> u64 {
        self.nanos.checked_div(self.count).unwrap_or(u64::MAX)
    }
}

impl Quickest {
    fn note(&mut self, nanos: u64) {
        if self.seen == WINDOW {
            self.nanos = [u64::MAX, self.nanos[0]];
            self.seen = 0;
        }
        self.seen += 1;
        self.nanos[0] = self.nanos[0].min(nanos);
    }
}
