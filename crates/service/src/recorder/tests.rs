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
    let text =
        "[pool]\nlabel = \"web\"\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";
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
        let end = Instant::now() + WITHIN;
        // It also returns when only the second one of the two is ready.
        while !self.link.wait(self.link.as_fd(), WITHIN).unwrap() {
            assert!(Instant::now() < end, "an event");
        }
        match self.link.attend().unwrap() {
            FromService::Record { event, kind } => (serde_json::from_slice(&event).unwrap(), kind),
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
fn an_act_without_an_answer_in_time_is_an_error_and_leaves_its_slot() {
    let rig = Rig::new("keys = true");
    let state = &rig.recorder.state;
    let soon = Instant::now() + Duration::from_millis(10);
    let reserve = || state.reserve(soon);
    let numbers: Vec<_> = (0..ServiceLink::MOST_UNRECORDED)
        .map(|_| reserve().unwrap())
        .collect();
    let late = |error: Error| {
        let error = error.to_string();
        assert!(error.contains("has not answered within 60 s"), "{error}");
    };
    late(reserve().unwrap_err());
    for number in numbers {
        late(state.answer(number, soon).unwrap_err());
    }
    reserve().unwrap();
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
