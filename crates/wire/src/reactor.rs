//! One thread for all sockets: listeners, clients, and the lanes to workers. It sleeps until a
//! descriptor is ready or a deadline passes; there is no tick.

mod sources;
mod timers;
mod turns;
mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hsmux_token::fork::Unshared;
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Result};
use rustix::event::{EventfdFlags, epoll, eventfd};

use sources::Sources;
use timers::Timers;
pub(crate) use turns::User;
use turns::{Ready, Turns};
pub(crate) use watch::Watch;

use crate::budget::Budgets;
use crate::busy_poll::{BusyPoll, look};
use crate::slots::AllSlots;

/// What the reactor watches: one or more descriptors, told apart by a tag, and deadlines.
pub(crate) trait Source: Send + Sync {
    /// A descriptor is ready. `scratch` is for reading; it holds nothing.
    fn ready(self: Arc<Self>, tag: u16, ready: epoll::EventFlags, scratch: &mut [u8]);

    /// Whose work it makes: users share the thread equally. `None`: everybody's, so that it comes first.
    fn user(&self) -> Option<User> {
        None
    }

    /// A time given to [`Watch::wake_at`] has come; answers the next one.
    fn expired(self: Arc<Self>, now: Instant) -> Option<Instant>;

    /// The reactor stops, or the source panicked: nothing will be watched any more.
    fn abandoned(self: Arc<Self>);
}

/// The thread; it ends with [`Reactor::stop`], or when the last reference is dropped.
pub struct Reactor {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is read within a turn has its room here.
pub struct TurnRoom(Box<[u8]>);

impl Default for TurnRoom {
    fn default() -> Self {
        Self(vec![0; SCRATCH].into_boxed_slice())
    }
}

struct Core {
    epoll: Unshared<OwnedFd>,
    waker: Unshared<OwnedFd>,
    stopping: AtomicBool,
    busy_polls: AtomicBool,
    /// Frames that a process on this machine works on.
    running: AtomicUsize,
    next_id: AtomicU64,
    sources: Sources,
    timers: Mutex<Timers>,
    /// Of the users of all its listeners.
    budgets: Budgets,
    /// The connections of all its listeners.
    slots: AllSlots,
}

/// A descriptor's name in epoll: the source's id, then the tag.
const TAG_BITS: u32 = 16;
const WAKER: u64 = 0;
const SCRATCH: usize = 64 << 10;
const EVENTS: usize = 64;

/// The same where more are ready and some are another user's: all of them are to be seen.
const MOST_EVENTS: usize = 4096;

/// After so long in which users' calls are heard, the others' new ones are looked for.
const ROUND: Duration = Duration::from_micros(20);

/// The kernel takes about so long to look whether one source is still ready.
const LOOK: Duration = Duration::from_nanos(100);

/// The process's own reactor, and the process that started it: a fork's child has no such thread.
static SHARED: Mutex<Option<(u32, Weak<Reactor>)>> = Mutex::new(None);

impl Reactor {
    /// Starts a thread of its own.
    pub fn start() -> Result<Arc<Self>> {
        let core = Arc::new(Core::new().map_err(failed)?);
        let of_thread = Arc::clone(&core);
        let thread = std::thread::Builder::new()
            .name("hsmux-reactor".into())
            .spawn(move || of_thread.run())
            .map_err(failed)?;
        Ok(Arc::new(Self {
            core,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Without a thread of its own: whoever has it calls [`Self::turn`] whenever [`Self::descriptor`] is ready.
    pub fn without_thread() -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            core: Arc::new(Core::new().map_err(failed)?),
            thread: Mutex::new(None),
        }))
    }

    /// Is ready for reading when there is something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.core.epoll.as_fd()
    }

    /// Does what is ready and what is due, without waiting. Answers when the next deadline passes; `None`: nothing is due
    /// before something is ready.
    pub fn turn(&self, room: &mut TurnRoom) -> Option<Instant> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let ready = look(&self.core.epoll, &mut events, Some(Duration::ZERO));
            for event in &events {
                self.core.dispatch(event, &mut room.0);
            }
            self.core.expire();
            if !matches!(ready, Ok(1..)) {
                break;
            }
        }
        self.core.timers.lock().next()
    }

    /// The one of this process, started if there is none.
    pub fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock();
        let process = std::process::id();
        let running = shared
            .as_ref()
            .filter(|(of, _)| *of == process)
            .and_then(|(_, reactor)| reactor.upgrade())
            .filter(|reactor| !reactor.core.stopping.load(Ordering::Acquire));
        if let Some(reactor) = running {
            return Ok(reactor);
        }
        let reactor = Self::start()?;
        *shared = Some((process, Arc::downgrade(&reactor)));
        Ok(reactor)
    }

    /// From now on the thread polls for a moment before it sleeps, if an event is likely to come soon and a
    /// CPU is left for that. For a process that does nothing else.
    pub fn use_busy_polling(&self) {
        self.core.busy_polls.store(true, Ordering::Relaxed);
    }

    /// Ends the thread, and with it every connection and lane. A server does this in the end: its
    /// connections keep the pool, and the pool's tokens keep this.
    pub fn stop(&self) {
        self.core.stopping.store(true, Ordering::Release);
        self.core.wake();
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        // The last reference may be dropped by a completion, which runs on the thread itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }

    /// What the users of its listeners hold.
    pub(crate) fn budgets(&self) -> Budgets {
        self.core.budgets.clone()
    }

    /// The connections of all its listeners.
    pub(crate) fn slots(&self) -> AllSlots {
        self.core.slots.clone()
    }

    /// Takes in a source, which is given the means to be watched by.
    pub(crate) fn adopt<S: Source + 'static>(&self, make: impl FnOnce(Watch) -> S) -> Arc<S> {
        self.core.adopt(make)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Core {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let epoll = Unshared::make(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let waker = Unshared::make(|| eventfd(0, flags))?;
        let data = epoll::EventData::new_u64(WAKER);
        epoll::add(&epoll, &waker, data, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            waker,
            stopping: AtomicBool::new(false),
            busy_polls: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            sources: Sources::default(),
            timers: Mutex::default(),
            budgets: Budgets::default(),
            slots: AllSlots::new(),
        })
    }

    fn adopt<S: Source + 'static>(self: &Arc<Self>, make: impl FnOnce(Watch) -> S) -> Arc<S> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let core = Arc::clone(self);
        let source = Arc::new(make(Watch { core, id }));
        let known: Arc<dyn Source> = source.clone();
        self.sources.insert(id, known);
        source
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    fn wake_at(&self, at: Instant, id: u64) {
        if self.timers.lock().set(at, id) {
            self.wake();
        }
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        let TurnRoom(mut scratch) = TurnRoom::default();
        let mut busy_poll = BusyPoll::new();
        let mut turns = Turns::new();
        while !self.stopping.load(Ordering::Acquire) {
            let next = self.timers.lock().next();
            events.clear();
            if let Err(errno) = self.wait(&mut events, next, &mut busy_poll) {
                tracing::error!(%errno, "epoll_wait failed; the reactor stops");
                break;
            }
            let of_several_users = self.sources.users() > 1;
            if of_several_users {
                self.take_turns(&events, &mut turns, &mut scratch);
            } else {
                for event in &events {
                    self.dispatch(event, &mut scratch);
                }
            }
            let all_full = events.len() == events.capacity();
            if of_several_users && all_full && events.len() < MOST_EVENTS {
                events.reserve(2 * events.len());
            }
            if next.is_some() {
                self.expire();
            }
        }
        let left = self.sources.take();
        // All are told before one is dropped, which may wait for its worker to end.
        for source in &left {
            Arc::clone(source).abandoned();
        }
    }

    /// Waits for events or the time of the next timer.
    fn wait(
        &self,
        events: &mut Vec<epoll::Event>,
        next: Option<Instant>,
        busy_poll: &mut BusyPoll,
    ) -> rustix::io::Result<()> {
        let within = next.map(|at| at.saturating_duration_since(Instant::now()));
        let busy_polls = self.busy_polls.load(Ordering::Relaxed);
        let running = busy_polls.then(|| self.running.load(Ordering::Relaxed));
        busy_poll.wait(&self.epoll, events, within, running)
    }

    fn dispatch(&self, event: &epoll::Event, scratch: &mut [u8]) {
        let (data, flags) = (event.data.u64(), event.flags);
        if data == WAKER {
            let _ = rustix::io::read(&self.waker, &mut [0_u8; 8]);
            return;
        }
        self.call_source(data >> TAG_BITS, |source| {
            source.ready(data as u16, flags, scratch);
        });
    }

    /// Serves the sources without a user, then for [`ROUND`] always a source of the user that has had the least time. The
    /// remaining sources are still ready in the next round.
    fn take_turns(
        &self,
        events: &[epoll::Event],
        turns: &mut Turns<epoll::Event>,
        scratch: &mut [u8],
    ) {
        let ready = |event: &epoll::Event| {
            let id = event.data.u64() >> TAG_BITS;
            let Some(user) = self.sources.user(id) else {
                self.dispatch(event, scratch);
                return None;
            };
            Some(Ready {
                user,
                id,
                what: *event,
            })
        };
        turns.begin(events.iter().filter_map(ready));
        let begun = Instant::now();
        let round = ROUND + LOOK * u32::try_from(events.len()).unwrap_or(u32::MAX);
        let mut now = begun;
        while now - begun < round
            && let Some(next) = turns.next()
        {
            self.dispatch(&next.what, scratch);
            let before = std::mem::replace(&mut now, Instant::now());
            turns.took(&next, now - before);
        }
    }

    fn expire(&self) {
        let now = Instant::now();
        loop {
            let due = self.timers.lock().take_due(now);
            let Some(id) = due else { return };
            self.call_source(id, |source| {
                if let Some(at) = source.expired(now) {
                    self.wake_at(at, id);
                }
            });
        }
    }

    /// Calls a source, which an event of a moment ago may have ended. One that panics is let go:
    /// the others are not to suffer.
    fn call_source(&self, id: u64, call: impl FnOnce(Arc<dyn Source>)) {
        let Some(source) = self.sources.get(id) else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| call(Arc::clone(&source)))).is_err() {
            tracing::error!("a connection's handler panicked; the connection is closed");
            drop(self.sources.remove(id));
            source.abandoned();
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    let message = format!("the reactor cannot start: {error}");
    Error::pool(Kind::Environment, message)
}
