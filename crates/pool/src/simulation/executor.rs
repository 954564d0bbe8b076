//! Runs the pool's threads one at a time, in an order that a seed decides, and by a clock of its own.
//!
//! A task keeps its thread until it waits, or is preempted before it takes a lock. So a lock that a task holds can be
//! wanted by another one, as on a real machine.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use hsmux_token::fake::Random;

pub(crate) type Work = Box<dyn FnOnce() + Send>;

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The simulation of this thread.
#[derive(Clone)]
struct Here {
    executor: Arc<Executor>,
    /// `None` on the thread that decides who runs.
    task: Option<(u64, Arc<Worker>)>,
}

pub(crate) struct Executor {
    base: Instant,
    nanos: AtomicU64,
    /// One of so many locks is taken after others have run; 0 for none.
    preempted: u64,
    decides: Baton,
    /// `TRACE` is set: events are printed.
    is_told: bool,
    state: Mutex<State>,
}

struct State {
    random: Random,
    tasks: Vec<Task>,
    number: u64,
    idle: Vec<Arc<Worker>>,
    failure: Option<String>,
    trace: u64,
}

struct Task {
    number: u64,
    name: String,
    work: Option<Work>,
    worker: Option<Arc<Worker>>,
    state: TaskState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskState {
    Ready,
    /// It was interrupted before it took a lock.
    Preempted,
    Waiting {
        for_what: usize,
        until: Option<u64>,
    },
}

/// A thread for one task after the other.
struct Worker {
    baton: Baton,
    work: Mutex<Option<(u64, Work)>>,
}

/// The right to run.
#[derive(Default)]
struct Baton {
    given: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Baton {
    fn give(&self) {
        self.given.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn take(&self) {
        while !self.given.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}

impl Executor {
    /// Makes this thread the one that decides who runs.
    pub fn new(seed: u64, preempted: u64) -> Arc<Self> {
        super::panics::note_panics();
        let decides = Baton::default();
        let _ = decides.thread.set(thread::current());
        let executor = Arc::new(Self {
            base: Instant::now(),
            nanos: AtomicU64::new(0),
            preempted,
            decides,
            is_told: std::env::var_os("TRACE").is_some(),
            state: Mutex::new(State {
                random: Random::new(seed),
                tasks: Vec::new(),
                number: 0,
                idle: Vec::new(),
                failure: None,
                trace: 0,
            }),
        });
        HERE.set(Some(Here {
            executor: Arc::clone(&executor),
            task: None,
        }));
        executor
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it")
    }

    pub fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Time that has passed since the beginning.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    pub fn advance(&self, time: Duration) {
        self.nanos
            .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn random<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.state().random)
    }

    /// Adds to the trace, by which two runs are compared.
    pub fn trace(&self, what: u64) {
        let mut state = self.state();
        state.trace = (state.trace.rotate_left(5) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub fn trace_so_far(&self) -> u64 {
        self.state().trace
    }

    /// Prints an event, if `TRACE` is set.
    pub fn tell(&self, event: impl FnOnce() -> String) {
        if self.is_told {
            eprintln!("{:?} {}", self.age(), event());
        }
    }

    /// The simulation has found something; the first counts.
    pub fn fail(&self, why: impl Into<String>) {
        self.state().failure.get_or_insert(why.into());
    }

    pub fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    pub fn spawn(&self, name: &str, work: Work) {
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        state.tasks.push(Task {
            number,
            name: name.into(),
            work: Some(work),
            worker: None,
            state: TaskState::Ready,
        });
    }

    /// True if a task was interrupted: no time passes until it goes on.
    pub fn is_one_preempted(&self) -> bool {
        let state = self.state();
        state
            .tasks
            .iter()
            .any(|task| task.state == TaskState::Preempted)
    }

    /// The number of tasks with this name, or of all.
    pub fn count(&self, name: Option<&str>) -> usize {
        let state = self.state();
        let named = |task: &&Task| name.is_none_or(|name| task.name == name);
        state.tasks.iter().filter(named).count()
    }

    /// True on a thread of a task whose name begins so.
    pub fn is_task(&self, begin: &str) -> bool {
        let number = here(|here| here.task.as_ref().map(|(number, _)| *number)).flatten();
        let state = self.state();
        let mut tasks = state.tasks.iter();
        tasks.any(|task| Some(task.number) == number && task.name.starts_with(begin))
    }

    /// When a task of this name goes on by itself; `None` if it waits for others.
    pub fn wakes_at(&self, name: &str) -> Option<Instant> {
        let state = self.state();
        let task = state.tasks.iter().find(|task| task.name == name)?;
        match task.state {
            TaskState::Waiting { until, .. } => {
                until.map(|at| self.base + Duration::from_nanos(at))
            }
            TaskState::Ready | TaskState::Preempted => Some(self.now()),
        }
    }

    /// The next time at which a task goes on.
    pub fn next_wake(&self) -> Option<Instant> {
        let state = self.state();
        let times = state.tasks.iter().filter_map(|task| match task.state {
            TaskState::Waiting { until, .. } => until,
            _ => None,
        });
        let now = self.nanos.load(Ordering::Relaxed);
        let at = times.filter(|at| *at > now).min()?;
        Some(self.base + Duration::from_nanos(at))
    }

    /// What each task does, for a report.
    pub fn tasks(&self) -> Vec<String> {
        let state = self.state();
        let tasks = state.tasks.iter().map(|task| match task.state {
            TaskState::Ready => format!("{} is ready", task.name),
            TaskState::Preempted => format!("{} is preempted", task.name),
            TaskState::Waiting { until, .. } => {
                format!(
                    "{} waits until {:?}",
                    task.name,
                    until.map(Duration::from_nanos)
                )
            }
        });
        tasks.collect()
    }

    /// Runs one task that can go on, by choice of the seed. `false` if all wait.
    pub fn run_one(self: &Arc<Self>, which: impl Fn(&str) -> bool) -> bool {
        let now = self.nanos.load(Ordering::Relaxed);
        self.run_one_of(|task| {
            which(&task.name)
                && match task.state {
                    TaskState::Ready | TaskState::Preempted => true,
                    TaskState::Waiting { until, .. } => until.is_some_and(|until| until <= now),
                }
        })
    }

    fn run_one_of(self: &Arc<Self>, may_run: impl Fn(&Task) -> bool) -> bool {
        let mut state = self.state();
        let count = state.tasks.iter().filter(|task| may_run(task)).count();
        if count == 0 {
            return false;
        }
        let chosen = state.random.below(count as u64) as usize;
        let State { tasks, idle, .. } = &mut *state;
        let Some(task) = tasks.iter_mut().filter(|task| may_run(task)).nth(chosen) else {
            return false;
        };
        task.state = TaskState::Ready;
        let number = task.number;
        let worker = task.worker.get_or_insert_with(|| {
            idle.pop()
                .unwrap_or_else(|| Worker::start(Arc::clone(self)))
        });
        let worker = Arc::clone(worker);
        if let Some(work) = task.work.take() {
            *worker.work.lock().expect("nothing panics with it") = Some((number, work));
        }
        self.tell(|| format!("runs {number} {}", task.name));
        drop(state);
        self.trace(number);
        worker.baton.give();
        self.decides.take();
        true
    }

    /// The task of this thread gives way.
    fn give_way(&self, number: u64, worker: &Worker, to: TaskState) {
        let mut state = self.state();
        if let Some(task) = state.tasks.iter_mut().find(|task| task.number == number) {
            task.state = to;
        }
        drop(state);
        self.decides.give();
        worker.baton.take();
    }

    fn finished(&self, number: u64, worker: &Arc<Worker>) {
        let mut state = self.state();
        state.tasks.retain(|task| task.number != number);
        state.idle.push(Arc::clone(worker));
        drop(state);
        self.decides.give();
    }

    fn notify(&self, for_what: usize, mut times: usize) {
        let mut state = self.state();
        for task in &mut state.tasks {
            let waits =
                matches!(task.state, TaskState::Waiting { for_what: of, .. } if of == for_what);
            if waits && times > 0 {
                task.state = TaskState::Ready;
                times -= 1;
            }
        }
    }

    /// Ends its threads. All tasks have to be done.
    pub fn end(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        for worker in idle {
            // Without work it ends.
            worker.baton.give();
        }
        HERE.set(None);
    }
}

impl Worker {
    fn start(executor: Arc<Executor>) -> Arc<Self> {
        let worker = Arc::new(Self {
            baton: Baton::default(),
            work: Mutex::new(None),
        });
        let of_thread = Arc::clone(&worker);
        let thread = thread::Builder::new().name("simulated".into());
        let started = thread.spawn(move || of_thread.run(&executor));
        let started = started.expect("a thread for the simulation");
        let _ = worker.baton.thread.set(started.thread().clone());
        worker
    }

    fn run(self: &Arc<Self>, executor: &Arc<Executor>) {
        loop {
            self.baton.take();
            let work = self.work.lock().expect("nothing panics with it").take();
            let Some((number, work)) = work else { return };
            HERE.set(Some(Here {
                executor: Arc::clone(executor),
                task: Some((number, Arc::clone(self))),
            }));
            // The panic was noted by the hook.
            let _ = catch_unwind(AssertUnwindSafe(work));
            HERE.set(None);
            executor.finished(number, self);
        }
    }
}

fn here<T>(look: impl FnOnce(&Here) -> T) -> Option<T> {
    HERE.with_borrow(|here| here.as_ref().map(look))
}

/// True on a thread of a simulation.
pub(crate) fn is_here() -> bool {
    here(|_| ()).is_some()
}

pub(crate) fn now() -> Option<Instant> {
    here(|here| here.executor.now())
}

pub(crate) fn wall() -> Option<SystemTime> {
    here(|here| SystemTime::UNIX_EPOCH + here.executor.age())
}

pub(crate) fn random(bytes: &mut [u8]) -> bool {
    let drawn = here(|here| here.executor.random(|random| random.fill(bytes)));
    drawn.is_some()
}

/// The work, if this is no simulation.
pub(crate) fn spawn(name: &str, work: Work) -> Option<Work> {
    match here(|here| Arc::clone(&here.executor)) {
        Some(executor) => {
            executor.spawn(name, work);
            None
        }
        None => Some(work),
    }
}

pub(crate) fn wait(for_what: usize, until: Option<Instant>) {
    let here = here(Here::clone).expect("asked for before");
    let (number, worker) = here.task.expect("only a task may wait");
    let base = here.executor.base;
    let until = until.map(|until| until.saturating_duration_since(base).as_nanos() as u64);
    let waiting = TaskState::Waiting { for_what, until };
    here.executor.give_way(number, &worker, waiting);
}

pub(crate) fn notify(for_what: usize, times: usize) {
    here(|here| here.executor.notify(for_what, times));
}

/// A panic on this thread; true if it is one of a simulation.
pub(super) fn failed(why: &str) -> bool {
    let noted = HERE.try_with(|here| {
        let here = here.try_borrow().ok()?;
        here.as_ref()?.executor.fail(why);
        Some(())
    });
    noted.ok().flatten().is_some()
}

/// Before a lock is taken: others may run first.
pub(super) fn before_lock() {
    let Some(Some((executor, number, worker))) = here(|here| {
        let (number, worker) = here.task.as_ref()?;
        let executor = &here.executor;
        let is_chosen = executor.preempted > 0
            && executor.random(|random| random.below(executor.preempted)) == 0;
        is_chosen.then(|| (Arc::clone(executor), *number, Arc::clone(worker)))
    }) else {
        return;
    };
    executor.give_way(number, &worker, TaskState::Preempted);
}

/// A lock is taken: those run that hold it.
pub(super) fn let_others_run() {
    assert!(give_way(), "a lock is held by a task that waits");
}

/// Others run first that are preempted. `false` if there are none.
pub(crate) fn give_way() -> bool {
    let here = here(Here::clone).expect("asked for before");
    match here.task {
        Some((number, worker)) => {
            here.executor
                .give_way(number, &worker, TaskState::Preempted);
            true
        }
        None => here
            .executor
            .run_one_of(|task| task.state == TaskState::Preempted),
    }
}
