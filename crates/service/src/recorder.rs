//! The audit events of a service: they go over the link to the daemon, which writes them on its trail.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hsmux_audit::{Event, Recorder, not_admitted};
use hsmux_config::Config;
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{RecordKind, ServiceLink};
use parking_lot::{Condvar, Mutex};

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

    fn wait_for(&self, event: &Event, kind: fn(u64) -> RecordKind) -> Result<()> {
        let until = Instant::now() + ANSWER_WITHIN;
        let number = self.state.reserve(until)?;
        self.state.put(event, kind(number));
        self.state.answer(number, until)
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
        self.wait_for(&event, RecordKind::Announce)
    }

    fn commit(&self, event: Event) -> Result<()> {
        self.wait_for(&event, RecordKind::Commit)
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
            if self.sent.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }

    /// Waits until another event may wait for its answer, and gives it a number.
    fn reserve(&self, until: Instant) -> Result<u64> {
        let mut answers = self.answers.lock();
        while !answers.has_ended && answers.results.len() >= ServiceLink::MOST_UNRECORDED {
            if self.answered.wait_until(&mut answers, until).timed_out() {
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
            if self.answered.wait_until(&mut answers, until).timed_out() {
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::path::PathBuf;

    use hsmux_audit::Actor;
    use hsmux_token::ck;
    use hsmux_wire::{FromService, ToService};
    use serde_json::{Map, Value};

    use super::*;
    use crate::DaemonEvent;

    const WITHIN: Duration = Duration::from_secs(30);

    /// The daemon's end, and a recorder at the other one.
    struct Rig {
        link: ServiceLink,
        recorder: Arc<LinkRecorder>,
        hearing: JoinHandle<()>,
    }

    fn configuration(audit: &str) -> ToService {
        let text = "[pool]\nlabel = \"web\"\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
        ToService::Configuration(format!("{text}[audit]\n{audit}\n"))
    }

    impl Rig {
        fn new(audit: &str) -> Self {
            let (link, far) = ServiceLink::pair().unwrap();
            link.tell(&configuration(audit)).unwrap();
            let file = PathBuf::from("/nowhere/hsmux.toml");
            let daemon = Arc::new(Daemon::await_configuration(far, file).unwrap());
            let recorder = LinkRecorder::start(&daemon).unwrap();
            let hearing =
                thread::spawn(move || while daemon.next_event().unwrap() != DaemonEvent::End {});
            Self {
                link,
                recorder,
                hearing,
            }
        }

        fn heard(&self) -> (Value, RecordKind) {
            assert!(
                self.link.wait(self.link.as_fd(), WITHIN).unwrap(),
                "an event"
            );
            match self.link.attend().unwrap() {
                FromService::Record { event, kind } => {
                    (serde_json::from_slice(&event).unwrap(), kind)
                }
                other => panic!("{other:?}"),
            }
        }

        fn answer(&self, kind: RecordKind, result: Result<()>) {
            let (RecordKind::Announce(number) | RecordKind::Commit(number)) = kind else {
                panic!("{kind:?} has no answer");
            };
            self.link
                .tell(&ToService::Recorded { number, result })
                .unwrap();
        }

        fn end(self) {
            self.link.close();
            self.hearing.join().unwrap();
        }
    }

    fn key_use(number: usize) -> Event {
        let actor = Arc::new(Actor::client("token:app", "192.0.2.7:50412"));
        Event::key_use(&actor, "sign", number.to_string())
    }

    fn act(name: &str) -> Event {
        Event::act(&Arc::default(), name, Map::new())
    }

    fn until(what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + WITHIN;
        while !done() {
            assert!(Instant::now() < end, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn keys_are_not_used_while_too_many_events_wait() {
        let rig = Rig::new("keys = true");
        let recorder = &rig.recorder;
        recorder.admit().unwrap();
        let mut count = 0;
        let refused = loop {
            recorder.record(key_use(count));
            count += 1;
            assert!(count < 2 * MAX_WAITING, "there is no limit");
            if let Err(refused) = recorder.admit() {
                break refused;
            }
        };
        assert!(count >= MAX_WAITING);
        assert_eq!(refused.to_rv(), ck::CKR_DEVICE_MEMORY);
        // Uses that run have room, with a limit.
        for _ in 0..2 * MAX_WAITING {
            recorder.record(key_use(count));
            count += 1;
        }
        let lost = recorder.state.queue.lock().lost;
        assert!((1..=MAX_WAITING as u64).contains(&lost), "{lost}");
        for number in 0..count - lost as usize {
            let (event, kind) = rig.heard();
            assert_eq!(
                (&event["key"], kind),
                (&number.to_string().into(), RecordKind::Event)
            );
        }
        recorder.admit().unwrap();
        // Few long ones are as many.
        let long = || key_use(0).label(Some("l".repeat(10_000)));
        for _ in 0..2 * MAX_WAITING_BYTES / 10_000 {
            recorder.record(long());
        }
        recorder.admit().unwrap_err();
        assert!(recorder.state.queue.lock().events.len() < MAX_WAITING);
        rig.end();
    }

    #[test]
    fn with_on_failure_continue_keys_are_used_and_events_are_lost() {
        let rig = Rig::new("keys = true\non_failure = \"continue\"");
        for number in 0..2 * MAX_WAITING {
            rig.recorder.record(key_use(number));
        }
        rig.recorder.admit().unwrap();
        let queue = rig.recorder.state.queue.lock();
        assert!(queue.lost > 0 && queue.events.len() <= MAX_WAITING);
        drop(queue);
        rig.end();
    }

    #[test]
    fn keys_are_not_used_while_the_daemon_has_trouble() {
        let rig = Rig::new("keys = true");
        let tell = |why: Option<&str>| {
            let why = why.map(str::to_owned);
            rig.link.tell(&ToService::Trouble(why)).unwrap();
        };
        tell(Some("audit.log: no space"));
        until("keys are not used", || rig.recorder.admit().is_err());
        let refused = rig.recorder.admit().unwrap_err();
        assert_eq!(refused.to_rv(), ck::CKR_DEVICE_MEMORY);
        assert!(
            refused.to_string().contains("audit.log: no space"),
            "{refused}"
        );
        tell(None);
        until("keys are used", || rig.recorder.admit().is_ok());
        rig.end();
    }

    #[test]
    fn a_new_configuration_says_whether_uses_are_recorded() {
        let rig = Rig::new("keys = true");
        assert!(rig.recorder.wants_uses());
        rig.link.tell(&configuration("keys = false")).unwrap();
        until("no uses", || !rig.recorder.wants_uses());
        rig.end();
    }

    #[test]
    fn events_come_in_order_and_the_trails_error_is_the_answer() {
        let rig = Rig::new("keys = true");
        let recorder = Arc::clone(&rig.recorder);
        let acting = thread::spawn(move || {
            for number in 0..100 {
                recorder.record(key_use(number));
            }
            let announced = recorder.announce(act("one"));
            (announced, recorder.commit(act("two")))
        });
        for number in 0..100 {
            assert_eq!(rig.heard().0["key"], number.to_string());
        }
        let (event, kind) = rig.heard();
        assert_eq!(event["act"], "one");
        assert!(matches!(kind, RecordKind::Announce(_)), "{kind:?}");
        rig.answer(kind, Err(Error::pool(Kind::Environment, "no space")));
        let (event, kind) = rig.heard();
        assert_eq!(event["act"], "two");
        assert!(matches!(kind, RecordKind::Commit(_)), "{kind:?}");
        rig.answer(kind, Ok(()));
        let (announced, committed) = acting.join().unwrap();
        let error = announced.unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.to_string().contains("no space"), "{error}");
        committed.unwrap();
        rig.end();
    }

    #[test]
    fn the_end_of_the_daemon_ends_acts_that_wait() {
        let rig = Rig::new("keys = true");
        let acting: Vec<_> = (0..2 * ServiceLink::MOST_UNRECORDED)
            .map(|_| {
                let recorder = Arc::clone(&rig.recorder);
                thread::spawn(move || recorder.announce(act("one")))
            })
            .collect();
        for _ in 0..ServiceLink::MOST_UNRECORDED {
            rig.heard();
        }
        let begun = Instant::now();
        let recorder = Arc::clone(&rig.recorder);
        rig.end();
        for announced in acting {
            announced.join().unwrap().unwrap_err();
        }
        recorder.announce(act("late")).unwrap_err();
        assert!(begun.elapsed() < WITHIN, "the deadline has ended them");
    }

    #[test]
    fn so_many_acts_wait_for_their_answers_and_others_take_turns() {
        let rig = Rig::new("keys = true");
        let acting: Vec<_> = (0..ServiceLink::MOST_UNRECORDED + 10)
            .map(|_| {
                let recorder = Arc::clone(&rig.recorder);
                thread::spawn(move || recorder.commit(act("one")))
            })
            .collect();
        let mut waiting: VecDeque<_> = (0..ServiceLink::MOST_UNRECORDED)
            .map(|_| rig.heard().1)
            .collect();
        let more = rig.link.wait(rig.link.as_fd(), Duration::from_millis(100));
        assert!(!more.unwrap(), "more wait than the daemon has room for");
        for _ in 0..10 {
            rig.answer(waiting.pop_front().unwrap(), Ok(()));
            waiting.push_back(rig.heard().1);
        }
        for kind in waiting {
            rig.answer(kind, Ok(()));
        }
        for committed in acting {
            committed.join().unwrap().unwrap();
        }
        rig.end();
    }

    #[test]
    fn at_the_end_all_events_are_sent_unless_nobody_takes_them() {
        let rig = Rig::new("keys = true");
        let count = 5_000;
        for number in 0..count {
            rig.recorder.record(key_use(number));
        }
        let recorder = Arc::clone(&rig.recorder);
        let closing = thread::spawn(move || recorder.close_within(WITHIN));
        for number in 0..count {
            assert_eq!(rig.heard().0["key"], number.to_string());
        }
        closing.join().unwrap();
        rig.recorder.record(key_use(0));
        assert_eq!(rig.recorder.state.queue.lock().lost, 1);
        rig.end();

        let rig = Rig::new("keys = true");
        for number in 0..count {
            rig.recorder.record(key_use(number));
        }
        rig.recorder.close_within(Duration::from_millis(10));
        assert!(rig.recorder.state.queue.lock().lost > 0);
        rig.end();
    }
}
