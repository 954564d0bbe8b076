//! The recorder under random orders of threads. Whoever waits for ever is a failure: shuttle reports a deadlock.

use std::path::Path;

use hsmux_token::sync::shuttle::thread;
use hsmux_token::sync::{Deadlines, in_many_orders};
use serde_json::Map;

use super::*;

/// Orders of threads that each test tries, of each kind.
const ORDERS: usize = 5_000;

const CALLERS: usize = 3;
const EVENTS: usize = 2 * CALLERS;

const CONFIGURATION: &str =
    "[pool]\nlabel = \"web\"\n[[token]]\nmodule = \"/nowhere.so\"\nuri = \"pkcs11:token=a\"\n";

/// What reached the daemon.
#[derive(Default)]
struct ModelDaemon {
    sent: Mutex<Sent>,
    changed: Condvar,
}

#[derive(Default)]
struct Sent {
    /// All events, and those that are answered.
    events: usize,
    commits: usize,
    lost: u64,
    refusals: u64,
}

/// As the sender's thread, with a daemon that answers at once.
fn send_all(state: &RecorderState, daemon: &ModelDaemon) {
    while let Some(event) = state.next() {
        let mut sent = daemon.sent.lock();
        match event.kind {
            RecordKind::Announce(number) | RecordKind::Commit(number) => {
                sent.events += 1;
                sent.commits += 1;
                state.set_result(number, Ok(()));
            }
            RecordKind::Event => sent.events += 1,
            RecordKind::Lost(lost) => sent.lost += lost,
            RecordKind::Refusals(refusals) => sent.refusals += refusals,
        }
        daemon.changed.notify_one();
    }
}

/// Each caller records an event, commits another, and is refused once. Returns whether the commit was answered.
fn call(state: &RecorderState) -> bool {
    let event = Event::act(&Arc::default(), "test", Map::new());
    state.put(&event, RecordKind::Event);
    let is_answered = state.put_and_wait(&event, RecordKind::Commit).is_ok();
    // Last: no later event wakes the sender for it.
    state.count_refusal();
    is_answered
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    WhenAllIsSent,
    /// The service is closed meanwhile.
    Closed,
    /// The daemon ends meanwhile.
    Cut,
}

fn check(end: End, deadlines: Deadlines) {
    let config = hsmux_config::parse(Path::new("/nowhere/hsmux.toml"), CONFIGURATION);
    let config = config.ok().expect("a configuration");
    let run = move || {
        let (state, daemon) = (
            Arc::new(RecorderState::new(&config)),
            Arc::<ModelDaemon>::default(),
        );
        let sender = {
            let (state, daemon) = (Arc::clone(&state), Arc::clone(&daemon));
            thread::spawn(move || send_all(&state, &daemon))
        };
        let callers = (0..CALLERS).map(|_| {
            let state = Arc::clone(&state);
            thread::spawn(move || call(&state))
        });
        let callers: Vec<_> = callers.collect();
        match end {
            End::WhenAllIsSent => {
                let mut sent = daemon.sent.lock();
                while sent.events < EVENTS || sent.refusals < CALLERS as u64 {
                    daemon.changed.wait(&mut sent);
                }
                drop(sent);
                state.flush(Instant::now() + CLOSE_WITHIN);
            }
            End::Closed => state.flush(Instant::now() + CLOSE_WITHIN),
            End::Cut => {}
        }
        state.end();
        let callers = callers.into_iter().map(|caller| caller.join().unwrap());
        let answered = callers.filter(|is_answered| *is_answered).count();
        sender.join().unwrap();
        let sent = daemon.sent.lock();
        let lost = sent.lost + state.queue.lock().lost;
        assert_eq!(sent.events as u64 + lost, EVENTS as u64);
        assert!(answered <= sent.commits, "only what was sent is answered");
        assert!(state.answers.lock().results.is_empty(), "nobody waits");
    };
    in_many_orders(ORDERS, deadlines, run);
}

#[test]
fn each_event_and_each_refusal_is_sent() {
    check(End::WhenAllIsSent, Deadlines::Pass);
    check(End::WhenAllIsSent, Deadlines::Never);
}

#[test]
fn each_event_is_sent_or_counted_as_lost_if_the_service_ends() {
    check(End::Closed, Deadlines::Pass);
    check(End::Closed, Deadlines::Never);
}

#[test]
fn each_event_is_sent_or_counted_as_lost_if_the_daemon_ends() {
    check(End::Cut, Deadlines::Pass);
    check(End::Cut, Deadlines::Never);
}
