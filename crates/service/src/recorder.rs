//! The audit events of a service: they go over the link to the daemon, which writes them on its trail.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hsmux_audit::{Event, Recorder, not_admitted};
use hsmux_config::Config;
use hsmux_token::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{RecordKind, ServiceLink};

use crate::Daemon;

/// The number of events that may wait for the daemon. Then keys are not used.
const MAX_WAITING: usize = 10_000;

/// Their bytes.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The time in which the daemon has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The time that the events which still wait have at the end.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The time between two looks whether the recorder was closed, while the daemon reads nothing.
const LOOK: Duration = Duration::from_millis(500);

const _: () = assert!(Event::MAX_BYTES <= ServiceLink::LONGEST_EVENT);

/// Records events on the daemon's trail. Dropping it [closes](LinkRecorder::close) it.
pub struct LinkRecorder {
    daemon: Arc<Daemon>,
    state: Arc<RecorderState>,
    sender: Mutex<Option<JoinHandle<()>>>,
}

/// Shared with the thread that sends events, and with the link.
pub struct RecorderState {
    wants_uses: AtomicBool,
    /// True if keys are not used while too many events wait.
    stops: AtomicBool,
    is_full: AtomicBool,
    /// Acts that were refused, and that the daemon has not counted yet.
    refusals: AtomicU64,
    queue: Mutex<EventQueue>,
    queued: Condvar,
    sent: Condvar,
    answers: Mutex<EventAnswers>,
    answered: Condvar,
}

#[derive(Default)]
struct EventQueue {
    events: VecDeque<QueuedEvent>,
    bytes: usize,
    is_sending: bool,
    stage: Stage,
    /// Events lost since the last line of the log about them.
    lost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Open,
    /// No event comes any more, and the sender ends after the last one.
    Closing,
    /// No event is sent any more.
    Ended,
}

struct QueuedEvent {
    bytes: Vec<u8>,
    kind: RecordKind,
}

/// Events that the daemon has to answer, by number.
#[derive(Default)]
struct EventAnswers {
    last: u64,
    results: HashMap<u64, Option<Result<()>>>,
    has_ended: bool,
}

impl LinkRecorder {
    /// Starts it. A service has one.
    pub fn start(daemon: &Arc<Daemon>) -> Result<Arc<Self>> {
        let failed = |why: &str| Error::pool(Kind::Environment, format!("audit events: {why}"));
        let state = Arc::new(RecorderState::new(&daemon.config()));
        daemon
            .recorder
            .set(Arc::clone(&state))
            .map_err(|_| failed("they have a recorder"))?;
        // It may have changed before the daemon knew the recorder.
        state.configure(&daemon.config());
        let (to, events) = (Arc::clone(daemon), Arc::clone(&state));
        let sender = thread::Builder::new()
            .name("hsmux-events".into())
            .spawn(move || events.send(&to.link))
            .map_err(|e| failed(&e.to_string()))?;
        Ok(Arc::new(Self {
            daemon: Arc::clone(daemon),
            state,
            sender: Mutex::new(Some(sender)),
        }))
    }

    /// Sends the events that wait, for a few seconds at most. Later events are lost.
    pub fn close(&self) {
        self.close_within(CLOSE_WITHIN);
    }

    fn close_within(&self, within: Duration) {
        let until = Instant::now() + within;
        self.state.flush(until);
        self.state.end();
        if let Some(sender) = self.sender.lock().take() {
            let _ = sender.join();
        }
    }
}

impl Recorder for LinkRecorder {
    fn wants_uses(&self) -> bool {
        self.state.wants_uses.load(Ordering::Relaxed)
    }

    fn admit(&self) -> Result<()> {
        let state = &self.state;
        if let Some(why) = self.daemon.trouble() {
            state.count_refusal();
            return Err(not_admitted(&why));
        }
        if state.is_full.load(Ordering::Relaxed) && state.stops.load(Ordering::Relaxed) {
            state.count_refusal();
            return Err(not_admitted("lines come faster than the daemon takes them"));
        }
        Ok(())
    }

    fn record(&self, event: Event) {
        self.state.put(&event, RecordKind::Event);
    }

    fn announce(&self, event: Event) -> Result<()> {
        self.state.put_and_wait(&event, RecordKind::Announce)
    }

    fn commit(&self, event: Event) -> Result<()> {
        self.state.put_and_wait(&event, RecordKind::Commit)
    }
}

impl Drop for LinkRecorder {
    fn drop(&mut self) {
        self.close();
    }
}

impl RecorderState {
    fn new(config: &Config) -> Self {
        let state = Self {
            wants_uses: AtomicBool::new(false),
            stops: AtomicBool::new(true),
            is_full: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            queue: Mutex::default(),
            queued: Condvar::new(),
            sent: Condvar::new(),
            answers: Mutex::default(),
            answered: Condvar::new(),
        };
        state.configure(config);
        state
    }

    /// Applies a configuration.
    pub fn configure(&self, config: &Config) {
        self.wants_uses.store(config.audit.keys, Ordering::Relaxed);
        self.stops.store(config.audit.stops, Ordering::Relaxed);
    }

    /// Has the daemon count an act that is refused.
    fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        // The lock ensures that the sender has either seen the number or waits already.
        drop(self.queue.lock());
        self.queued.notify_one();
    }

    /// The daemon's result of an event.
    pub fn set_result(&self, number: u64, result: Result<()>) {
        let mut answers = self.answers.lock();
        if let Some(slot) = answers.results.get_mut(&number) {
            *slot = Some(result);
            self.answered.notify_all();
        }
    }

    /// The daemon has ended, or this service ends: nothing is sent any more.
    pub fn end(&self) {
        let mut queue = self.queue.lock();
        queue.stage = Stage::Ended;
        let left = mem::take(&mut queue.events).len() as u64;
        queue.bytes = 0;
        if left > 0 {
            queue.lost += left;
            tracing::error!(
                lost = queue.lost,
                "the service ends, and lines of the audit trail are lost"
            );
        }
        drop(queue);
        self.queued.notify_all();
        self.sent.notify_all();
        self.answers.lock().has_ended = true;
        self.answered.notify_all();
    }

    /// Adds an event. Never waits; an event that has no room is lost.
    fn put(&self, event: &Event, kind: RecordKind) {
        let bytes = event.to_bytes();
        let mut queue = self.queue.lock();
        // Events of uses that were admitted before still have room; those with an answer are few.
        let times = if self.stops.load(Ordering::Relaxed) {
            2
        } else {
            1
        };
        let has_room = kind != RecordKind::Event || !queue.exceeds(times);
        if queue.stage != Stage::Open || !has_room {
            if queue.lost == 0 {
                tracing::error!("lines of the audit trail are lost: the daemon does not take them");
            }
            queue.lost += 1;
            return;
        }
        queue.bytes += bytes.len();
        queue.events.push_back(QueuedEvent { bytes, kind });
        self.is_full.store(queue.exceeds(1), Ordering::Relaxed);
        drop(queue);
        self.queued.notify_one();
    }

    /// Adds an event, and waits for the daemon's result.
    fn put_and_wait(&self, event: &Event, kind: fn(u64) -> RecordKind) -> Result<()> {
        let until = Instant::now() + ANSWER_WITHIN;
        let number = self.reserve(until)?;
        self.put(event, kind(number));
        self.answer(number, until)
    }

    /// Sends events until the end.
    fn send(&self, link: &ServiceLink) {
        while let Some(event) = self.next() {
            if !self.send_one(link, &event) {
                self.queue.lock().events.push_front(event);
                return self.end();
            }
        }
    }

    /// The next event, when there is one.
    fn next(&self) -> Option<QueuedEvent> {
        let mut queue = self.queue.lock();
        queue.is_sending = false;
        while queue.events.is_empty() {
            let refusals = self.refusals.swap(0, Ordering::Relaxed);
            if refusals > 0 {
                queue.is_sending = true;
                return Some(QueuedEvent {
                    bytes: Vec::new(),
                    kind: RecordKind::Refusals(refusals),
                });
            }
            if queue.lost > 0 && queue.stage == Stage::Open {
                let lost = mem::take(&mut queue.lost);
                tracing::error!(lost, "lines of the audit trail were lost");
                queue.is_sending = true;
                return Some(QueuedEvent {
                    bytes: Vec::new(),
                    kind: RecordKind::Lost(lost),
                });
            }
            self.sent.notify_all();
            if queue.stage != Stage::Open {
                return None;
            }
            self.queued.wait(&mut queue);
        }
        let event = queue.events.pop_front()?;
        queue.bytes -= event.bytes.len();
        queue.is_sending = true;
        self.is_full.store(queue.exceeds(1), Ordering::Relaxed);
        Some(event)
    }

    /// False if the other end has gone, or this one ends.
    fn send_one(&self, link: &ServiceLink, event: &QueuedEvent) -> bool {
        loop {
            // Most of the room stays free for other packets, such as new connections.
            match link.wait_for_room(LOOK) {
                Ok(true) => {}
                Ok(false) if self.queue.lock().stage == Stage::Ended => return false,
                Ok(false) => continue,
                Err(_) => return false,
            }
            match link.record(&event.bytes, event.kind) {
                Ok(()) => return true,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }

    /// Waits until all events are sent.
    fn flush(&self, until: Instant) {
        let mut queue = self.queue.lock();
        if queue.stage == Stage::Open {
            queue.stage = Stage::Closing;
            self.queued.notify_all();
        }
        while queue.stage == Stage::Closing && (queue.is_sending || !queue.events.is_empty()) {
            if self.sent.wait_until(&mut queue, until) {
                return;
            }
        }
    }

    /// Waits until another event may wait for its answer, and gives it a number.
    fn reserve(&self, until: Instant) -> Result<u64> {
        let mut answers = self.answers.lock();
        while !answers.has_ended && answers.results.len() >= ServiceLink::MOST_UNRECORDED {
            if self.answered.wait_until(&mut answers, until) {
                return Err(unanswered());
            }
        }
        answers.last += 1;
        let number = answers.last;
        answers.results.insert(number, None);
        Ok(number)
    }

    /// Waits for the daemon's result of an event.
    fn answer(&self, number: u64, until: Instant) -> Result<()> {
        let mut answers = self.answers.lock();
        loop {
            let is_last = answers.has_ended;
            if let Some(Some(result)) = answers.results.get_mut(&number).map(Option::take) {
                answers.results.remove(&number);
                self.answered.notify_all();
                return result;
            }
            if is_last {
                answers.results.remove(&number);
                return Err(unrecorded("the daemon or this service has ended"));
            }
            if self.answered.wait_until(&mut answers, until) {
                answers.results.remove(&number);
                self.answered.notify_all();
                return Err(unanswered());
            }
        }
    }
}

impl EventQueue {
    /// True if there are as many events as so many times the limit.
    fn exceeds(&self, times: usize) -> bool {
        self.events.len() >= times * MAX_WAITING || self.bytes >= times * MAX_WAITING_BYTES
    }
}

fn unanswered() -> Error {
    let seconds = ANSWER_WITHIN.as_secs();
    unrecorded(&format!("the daemon has not answered within {seconds} s"))
}

fn unrecorded(why: &str) -> Error {
    let message = format!("it is not known to be on the audit trail: {why}");
    Error::pool(Kind::Environment, message)
}

#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(test)]
mod tests;
