//! The worker's end of connections that were handed over to it: programs' own, each for uses of one key.

mod connection;
#[doc(hidden)]
pub mod fuzzing;
mod round;
mod turns;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, ObjectId, Operation, Params, Result, Token};
use rustix::event::{EventfdFlags, epoll, eventfd};

use connection::ConnectionReader;
pub(crate) use connection::MOST_USES;
pub use connection::ProgramConnection;
use round::Round;

use crate::busy_poll::{BusyPoll, look};

/// The longest frame of such a connection: what is longer goes through the daemon.
pub(crate) const LONGEST: usize = 32 << 10;

/// Upper bound of the bytes in a frame besides its data.
pub(crate) const AROUND: usize = 4 << 10;

/// Read at once: a whole frame, or of two that hear a connection each would have a part.
const CHUNK: usize = LONGEST + 4;

/// A use that takes longer gains nothing from the short way, and others wait behind it.
const SHORT: Duration = Duration::from_millis(2);

/// So many uses, one after the other, are not short: then the connection ends after its frame.
const TOO_LONG: u32 = 8;

/// As many as may be open, so that each user's are seen.
const EVENTS: usize = 512;

/// Uses of one user that are heard together, before the first of them is done.
const TOGETHER: usize = 64;
const WAKER: u64 = 0;

/// With the number of a connection: it is at home with the thread.
const HOME: u64 = 1 << 63;

/// Some connections, served by one thread.
///
/// What comes on them is not to be believed: it is programs that write there, with no daemon between.
///
/// A shared one is heard by other threads and processes, too. Each waits with EPOLLEXCLUSIVE (epoll_ctl(2)), so
/// that the kernel wakes one that waits and none that works; and reads what comes when it can begin with it, so that
/// until then it is there for whoever is free first. Those at home come before one of the others: their programs are on
/// this thread's CPU, as a rule.
pub struct Direct {
    epoll: OwnedFd,
    waker: OwnedFd,
    readers: Mutex<HashMap<u64, ConnectionReader>>,
    open: AtomicUsize,
    at_home: AtomicUsize,
    everywhere: Arc<AtomicUsize>,
    /// Those that others hear, too.
    shared: AtomicUsize,
    /// Users whose they are.
    users: AtomicUsize,
    /// Turns that connections of several users have had.
    turns: AtomicU64,
    stopping: AtomicBool,
}

/// What happens around the work on a [`Direct`].
pub trait Supervisor: Sync {
    /// Work begins, or goes on after an answer; it may not return.
    fn begin(&self);

    /// So many uses were served since it began, and nothing runs. The time of [`Self::rest`], if it is to be.
    fn end(&self, served: u64) -> Option<Instant>;

    /// It is time, and nothing has come since.
    fn rest(&self);
}

/// Whether it is past this time, which is then forgotten.
fn is_over(time: &mut Option<Instant>) -> bool {
    time.take_if(|time| *time <= Instant::now()).is_some()
}

/// The CPU that this thread is on, as far as it may be said: it may be on another one at once.
pub(crate) fn processor() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

/// The key, if the operation is a use of a token's key that fits on such a connection.
pub(crate) fn key_of_short_use(operation: &Operation) -> Option<ObjectId> {
    let (_, key, mechanism, data) = operation.key_use()?;
    let params = match &mechanism.params {
        Params::Bytes(bytes) => bytes.len(),
        Params::Gcm(gcm) => gcm.aad.len(),
        _ => 0,
    };
    (data.len() + params + AROUND < LONGEST).then_some(key)
}

impl Direct {
    /// Without connections. `everywhere` counts those of all threads of this process.
    pub fn new(everywhere: Arc<AtomicUsize>) -> Result<Self> {
        let failed = |errno| {
            let message = format!("connections cannot be taken over: {errno}");
            Error::pool(Kind::Environment, message)
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let data = epoll::EventData::new_u64(WAKER);
        epoll::add(&epoll, &waker, data, epoll::EventFlags::IN).map_err(failed)?;
        Ok(Self {
            epoll,
            waker,
            readers: Mutex::default(),
            open: AtomicUsize::new(0),
            at_home: AtomicUsize::new(0),
            everywhere,
            shared: AtomicUsize::new(0),
            users: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Takes a connection over, which `number` names from here on, at home with this thread or not; one that it has
    /// is only `shared` from here on. From any thread.
    pub fn admit(
        &self,
        number: u64,
        connection: Arc<ProgramConnection>,
        shared: bool,
        home: bool,
    ) -> io::Result<()> {
        // Both under the lock: bytes that come at once have to find their reader.
        let mut readers = self.readers.lock();
        let entry = match readers.entry(number) {
            Entry::Vacant(entry) => entry,
            Entry::Occupied(mut reader) => {
                if shared && !std::mem::replace(&mut reader.get_mut().shared, true) {
                    self.shared.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(());
            }
        };
        let data = epoll::EventData::new_u64(number | if home { HOME } else { 0 });
        let events = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, &connection.stream, data, events)?;
        entry.insert(ConnectionReader::new(connection, shared, home));
        self.open.fetch_add(1, Ordering::Relaxed);
        self.at_home.fetch_add(usize::from(home), Ordering::Relaxed);
        self.shared
            .fetch_add(usize::from(shared), Ordering::Relaxed);
        self.count_users(&readers);
        Ok(())
    }

    fn count_users(&self, readers: &HashMap<u64, ConnectionReader>) {
        let users: HashSet<_> = readers
            .values()
            .map(|reader| reader.connection.account)
            .collect();
        self.users.store(users.len(), Ordering::Relaxed);
    }

    /// The connection of this number, if it is heard here.
    pub fn find(&self, number: u64) -> Option<Arc<ProgramConnection>> {
        let readers = self.readers.lock();
        readers
            .get(&number)
            .map(|reader| Arc::clone(&reader.connection))
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Those of them that are at home here.
    pub fn at_home(&self) -> usize {
        self.at_home.load(Ordering::Relaxed)
    }

    /// Ends [`Self::serve`], when it has answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Serves on this thread, until [`Self::stop`].
    pub fn serve(&self, token: &dyn Token, supervisor: &dyn Supervisor) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut ready = Vec::with_capacity(EVENTS);
        let mut round = Round::default();
        let mut busy_poll = BusyPoll::new();
        let mut asker = None;
        // Connections with uses that this thread has read and not done.
        let mut unfinished: Vec<u64> = Vec::new();
        let [mut kept, mut rest]: [Option<Instant>; 2] = [None; 2];
        loop {
            let is_stopping = self.stopping.load(Ordering::Acquire);
            if is_stopping && unfinished.is_empty() {
                break;
            }
            events.clear();
            let looked = if unfinished.is_empty() {
                let next = kept.into_iter().chain(rest).min();
                let within = next.map(|until| until.saturating_duration_since(Instant::now()));
                let running = self.everywhere.load(Ordering::Relaxed);
                busy_poll.wait(&self.epoll, &mut events, within, Some(running))
            } else {
                look(&self.epoll, &mut events, Some(Duration::ZERO)).map(drop)
            };
            looked.map_err(|errno| Error::lost(format!("epoll_wait: {errno}")))?;
            if is_over(&mut kept) {
                token.discard_ready();
            }
            self.end_hung_up(&events, &mut unfinished);
            ready.clear();
            // These first: no other worker can take them.
            ready.extend(&unfinished);
            if !is_stopping {
                let events = events.iter().map(|event| event.data.u64());
                ready.extend(events.filter(|n| *n != WAKER && !unfinished.contains(n)));
            }
            let mut served = false;
            for turn in self.turns(&mut ready) {
                self.hear(turn, &mut round);
                if !round.operations.is_empty() {
                    let last = self.run(&mut round, token, supervisor);
                    let before = std::mem::replace(&mut asker, round.only_reader());
                    // If several connections take turns, one of them has asked by now.
                    let next = last.filter(|_| asker.is_some() && asker == before);
                    kept = next.and_then(|last| token.make_ready(&last)).or(kept);
                    rest = supervisor.end(round.served());
                    served = true;
                }
                self.note_unfinished(turn, &mut unfinished);
            }
            if !served && is_over(&mut rest) {
                supervisor.rest();
            }
        }
        supervisor.rest();
        let mut readers = self.readers.lock();
        let numbers: Vec<u64> = readers.keys().copied().collect();
        for number in numbers {
            self.remove(&mut readers, number);
        }
        Ok(())
    }

    /// The last of what was asked.
    fn run(
        &self,
        round: &mut Round,
        token: &dyn Token,
        supervisor: &dyn Supervisor,
    ) -> Option<Operation> {
        let Round {
            operations,
            parts,
            part_of,
            out,
            ..
        } = round;
        supervisor.begin();
        let mut begun = Instant::now();
        token.execute_all(operations, &mut |place, result| {
            // Those that have come together are as many, each with its time.
            supervisor.begin();
            let now = Instant::now();
            let took = now - std::mem::replace(&mut begun, now);
            let (part, of_part) = part_of[place];
            let part = &mut parts[part];
            part.results[of_part] = Some(result);
            part.missing -= 1;
            let number = part.reader;
            let mut readers = self.readers.lock();
            let goes_on = readers.get_mut(&number).is_none_or(|reader| {
                reader.long = if took > SHORT { reader.long + 1 } else { 0 };
                let is_done = part.missing == 0;
                let answered = !is_done || reader.finish(part.take_results(), out);
                let is_whole = is_done && !reader.is_unfinished();
                answered && !(is_whole && reader.long >= TOO_LONG)
            });
            if !goes_on {
                self.remove(&mut readers, number);
            }
        });
        operations.pop().map(|(last, _)| last)
    }

    fn remove(&self, readers: &mut HashMap<u64, ConnectionReader>, number: u64) {
        if let Some(reader) = readers.remove(&number) {
            let _ = epoll::delete(&self.epoll, &reader.connection.stream);
            reader.end();
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.at_home
                .fetch_sub(usize::from(reader.home), Ordering::Relaxed);
            self.shared
                .fetch_sub(usize::from(reader.shared), Ordering::Relaxed);
            self.count_users(readers);
        }
    }
}
