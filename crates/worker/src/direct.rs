//! Direct connections, at the worker's end: it takes them over, watches their work for hangs, and ends them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Result, Token};
use hsmux_wire::{Direct, ProgramConnection, Supervisor};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::Profile;
use super::handover::{self, ReceivedConnection, Terms};

/// The direct connections of this worker: its token, and the threads that serve the token to programs.
pub(super) struct DirectClients {
    /// With the number of threads at most.
    token: OnceLock<(Arc<dyn Token>, usize)>,
    threads: Mutex<Vec<Serving>>,
    /// Connections of all threads.
    open: Arc<AtomicUsize>,
    watch: Arc<Watch>,
}

struct Serving {
    direct: Arc<Direct>,
    thread: JoinHandle<()>,
}

/// Detects a thread that is at work for too long. A timer runs only while there is work.
struct Watch {
    base: Instant,
    timer: OwnedFd,
    armed: AtomicBool,
    /// When each thread began its operation, in microseconds after `base`; 0 if it has none.
    begun: [AtomicU64; MOST],
    within: OnceLock<Duration>,
    tally: OnceLock<File>,
}

/// One thread's entry in the watch.
struct ThreadWatch {
    watch: Arc<Watch>,
    number: usize,
    served: AtomicU64,
    /// When `served` was last written to the tally, in microseconds after the watch's base.
    written: AtomicU64,
}

/// The tally is written at most this often: a write for each use would cost a system call each time.
const COUNTED_EVERY: Duration = Duration::from_millis(1);

/// Threads that serve programs, at most.
const MOST: usize = 16;

impl DirectClients {
    pub fn new() -> io::Result<Arc<Self>> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        Ok(Arc::new(Self {
            token: OnceLock::new(),
            threads: Mutex::default(),
            open: Arc::default(),
            watch: Arc::new(Watch {
                base: Instant::now(),
                timer,
                armed: AtomicBool::new(false),
                begun: std::array::from_fn(|_| AtomicU64::new(0)),
                within: OnceLock::new(),
                tally: OnceLock::new(),
            }),
        }))
    }

    /// The token of this module is open.
    pub fn open(&self, token: Arc<dyn Token>, module: &Path) {
        let lanes = token.info().lanes.max(1) as usize;
        let most = match Profile::of_module(module) {
            // It computes on this host's processors: more threads only wait for each other's locks.
            Profile::File => std::thread::available_parallelism().map_or(1, usize::from),
            _ => MOST,
        };
        let _ = self.token.set((token, lanes.min(most).min(MOST)));
    }

    /// Takes over connections from the parent, until the control socket ends. An error says that an operation hangs, and
    /// that this process has to end.
    pub fn keep(&self, control: &UnixStream) -> Result<()> {
        loop {
            let mut ready = [
                PollFd::new(control, PollFlags::IN),
                PollFd::new(&self.watch.timer, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled.map_err(|errno| Error::lost(format!("poll: {errno}")))?,
            };
            let [control_ready, timer_ready] = ready.map(|fd| !fd.revents().is_empty());
            if timer_ready {
                self.watch.look()?;
            }
            if control_ready {
                match handover::receive_connection(control) {
                    Ok(received) => self.take(received),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        // Probably out of descriptors. The program waits for a second, then asks the daemon.
                        tracing::warn!(%error, "a connection cannot be taken over");
                    }
                    // The parent has ended, or closed the control socket.
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// A connection that cannot be served is closed, and its program asks the daemon.
    fn take(&self, received: ReceivedConnection) {
        let ReceivedConnection {
            connection,
            tally,
            terms,
        } = received;
        let within = Duration::from_micros(terms.timeout_us);
        let _ = self.watch.within.set(within);
        let _ = self.watch.tally.set(tally);
        let taken = connection
            .try_clone()
            .and_then(|connection| self.admit(connection, &terms));
        if let Err(error) = taken {
            tracing::warn!(%error, "a connection cannot be taken over");
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
    }

    /// All threads listen on a shared connection. Another one goes to the thread that has the fewest.
    fn admit(&self, connection: UnixStream, terms: &Terms) -> io::Result<()> {
        let token = self.token.get();
        let (token, most) = token.ok_or_else(|| io::Error::other("the token is not open yet"))?;
        let mut threads = self.threads.lock();
        let is_idle = |serving: &Serving| serving.direct.at_home() == 0;
        while threads.is_empty()
            || threads.len() < *most && (terms.shared || !threads.iter().any(is_idle))
        {
            let serving = self.start(threads.len(), token)?;
            threads.push(serving);
        }
        let mut all: Vec<&Direct> = threads.iter().map(|serving| &*serving.direct).collect();
        all.sort_by_key(|direct| direct.at_home());
        if !terms.shared {
            all.truncate(1);
        }
        let known = all.iter().find_map(|direct| direct.find(terms.number));
        // The first of the threads is its home, if it is to have one here and has none yet.
        let mut home = terms.home && known.is_none();
        let handed = if let Some(known) = known {
            known
        } else {
            let open = Arc::clone(&self.open);
            Arc::new(ProgramConnection::new(
                connection,
                terms.version,
                terms.key,
                open,
            )?)
        };
        all.into_iter().try_for_each(|direct| {
            let home = std::mem::take(&mut home);
            direct.admit(terms.number, Arc::clone(&handed), terms.shared, home)
        })
    }

    /// Another thread, without connections.
    fn start(&self, number: usize, token: &Arc<dyn Token>) -> io::Result<Serving> {
        let direct = Arc::new(Direct::new(Arc::clone(&self.open)).map_err(io::Error::other)?);
        let (serving, token) = (Arc::clone(&direct), Arc::clone(token));
        let thread_watch = ThreadWatch {
            watch: Arc::clone(&self.watch),
            number,
            served: AtomicU64::new(0),
            written: AtomicU64::new(0),
        };
        let thread = std::thread::Builder::new()
            .name("hsmux-direct".into())
            .spawn(move || {
                if let Err(error) = serving.serve(&*token, &thread_watch) {
                    tracing::warn!(%error, "programs are not served directly any more");
                }
            })?;
        Ok(Serving { direct, thread })
    }

    /// Ends the threads, when they have answered.
    pub fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for serving in &threads {
            serving.direct.stop();
        }
        for serving in threads {
            let _ = serving.thread.join();
        }
    }
}

impl Watch {
    fn now(&self) -> u64 {
        (self.base.elapsed().as_micros() as u64).max(1)
    }

    fn within(&self) -> Duration {
        self.within.get().copied().unwrap_or(Duration::MAX)
    }

    /// The timer goes off within the time that an operation may take.
    fn arm(&self) {
        if self.armed.swap(true, Ordering::SeqCst) {
            return;
        }
        let within = self.within();
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: within.as_secs().min(1 << 20).cast_signed(),
                tv_nsec: i64::from(within.subsec_nanos()).max(1),
            },
        };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Handles the timer.
    fn look(&self) -> Result<()> {
        let _ = rustix::io::read(self.timer.as_fd(), &mut [0_u8; 8]);
        // A swap, as in `arm`: work that begins now is seen here, or arms the timer again.
        self.armed.swap(false, Ordering::SeqCst);
        let now = self.now();
        let begun = self.begun.iter().map(|begun| begun.load(Ordering::Acquire));
        let Some(first) = begun.filter(|begun| *begun != 0).min() else {
            return Ok(());
        };
        let within = self.within();
        if u128::from(now.saturating_sub(first)) >= within.as_micros() {
            let message = format!(
                "an operation of a program has not returned within {} s",
                within.as_secs_f64()
            );
            return Err(Error::lost(message));
        }
        self.arm();
        Ok(())
    }
}

impl Supervisor for ThreadWatch {
    fn begin(&self) {
        self.watch.begun[self.number].store(self.watch.now(), Ordering::Release);
        self.watch.arm();
    }

    fn end(&self, served: u64) -> Option<Instant> {
        let watch = &self.watch;
        watch.begun[self.number].store(0, Ordering::Release);
        self.served.fetch_add(served, Ordering::Relaxed);
        let written = Duration::from_micros(self.written.load(Ordering::Relaxed));
        let next = watch.base + written + COUNTED_EVERY;
        if Instant::now() < next {
            return Some(next);
        }
        self.rest();
        None
    }

    fn rest(&self) {
        self.written.store(self.watch.now(), Ordering::Relaxed);
        let served = self.served.load(Ordering::Relaxed);
        if let Some(tally) = self.watch.tally.get() {
            // A use that is not counted was served all the same.
            let _ = tally.write_all_at(&served.to_ne_bytes(), 8 * self.number as u64);
        }
    }
}

/// The number of uses that all threads of a worker have served, by its tally.
pub(super) fn read_tally(tally: &File) -> u64 {
    let mut bytes = [0; 8 * MOST];
    let read = tally.read_at(&mut bytes, 0).unwrap_or(0);
    let (numbers, _) = bytes[..read].as_chunks::<8>();
    numbers
        .iter()
        .map(|number| u64::from_ne_bytes(*number))
        .sum()
}
