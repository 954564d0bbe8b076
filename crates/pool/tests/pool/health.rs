//! Seats that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_pool::{Changes, Options, Pool, SeatState};
use hsmux_token::{Error, Kind, Operation, Outcome, Token, ck};

use crate::vault::*;

#[test]
fn a_member_that_cannot_be_connected_is_tried_again_with_back_off() {
    let key = Key::new(1);
    let broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&broken);
    let one = Supply::new(move || {
        if state.load(Ordering::SeqCst) {
            Err(Error::lost("the module is missing"))
        } else {
            Ok(honest("one", key).build())
        }
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    let status = pool.status();
    assert!(
        status.seats[0]
            .last_error
            .as_ref()
            .unwrap()
            .contains("missing")
    );
    // The first rest is of 200 ms. How long a later one is can be seen until it is over.
    eventually("the rests grow", || {
        let seat = &pool.status().seats[0];
        seat.state == SeatState::BackOff && seat.retry_in_us.is_some_and(|us| us > 300_000)
    });
    assert!(one.attempts.load(Ordering::SeqCst) >= 2);
    broken.store(false, Ordering::SeqCst);
    eventually("in service", || {
        pool.status().seats[0].state == SeatState::InService
    });
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

#[test]
fn a_refused_pin_parks_the_seat_until_somebody_resumes_it() {
    let key = Key::new(1);
    let one = Supply::new(|| Err(Error::token(Kind::PinHeld, "the PIN was refused")));
    let two = Supply::of(move || honest("two", key));
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    let seat = &pool.status().seats[0];
    assert_eq!(seat.state, SeatState::Parked);
    assert!(seat.reason.as_ref().unwrap().contains("PIN was refused"));
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(one.attempts.load(Ordering::SeqCst), 1);
    pool.resume("one").unwrap();
    eventually("tried again", || one.attempts.load(Ordering::SeqCst) == 2);
    eventually("parked again", || {
        pool.status().seats[0].state == SeatState::Parked
    });
}

#[test]
fn a_wrong_pin_is_sent_once() {
    let one = Supply::new(|| Err(Error::vendor("C_Login", ck::CKR_PIN_INCORRECT)));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    assert_eq!(pool.status().seats[0].state, SeatState::Parked);
    assert_eq!(one.attempts.load(Ordering::SeqCst), 1);
}

#[test]
fn a_proof_that_fails_for_another_reason_is_tried_again() {
    let key = Key::new(1);
    let one = Supply::new(move || {
        let token = honest("one", key).build();
        token.fail(Error::vendor("C_Sign", ck::CKR_DEVICE_MEMORY), 3);
        Ok(token)
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    eventually("the key has proved itself", || {
        pool.status().objects[0].members == ["one"]
    });
    assert_eq!(one.connections(), 1);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

#[test]
fn a_short_restart_of_the_only_member_is_not_seen() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    for _ in 0..3 {
        one.last().lose("restarting");
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        one.last().lose("restarting");
        let answer = submit(&pool, key.signing(), in_seconds(60));
        key.check(answer.recv().unwrap().unwrap());
    }
}

#[test]
fn all_members_gone_is_an_error_in_time_and_heals_by_itself() {
    let key = Key::new(1);
    let dead = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&dead);
    let one = Supply::new(move || {
        if state.load(Ordering::SeqCst) {
            Err(Error::lost("not plugged in"))
        } else {
            Ok(honest("one", key).build())
        }
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    dead.store(true, Ordering::SeqCst);
    one.last().lose("pulled out");
    let asked = Instant::now();
    let error = pool
        .execute(&key.signing(), asked + Duration::from_millis(500))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::NoReplica);
    assert!(error.to_string().contains("one: "), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(30));
    let error = submit(
        &pool,
        key.signing(),
        Instant::now() + Duration::from_millis(100),
    );
    assert_eq!(error.recv().unwrap().unwrap_err().kind(), Kind::NoReplica);
    dead.store(false, Ordering::SeqCst);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
}

#[test]
fn parked_members_do_not_serve_and_resumed_ones_do() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    pool.park("one", "maintenance").unwrap();
    let seat = &pool.status().seats[0];
    assert_eq!(
        (seat.state, seat.reason.as_deref()),
        (SeatState::Parked, Some("maintenance"))
    );
    let calls = one.last().calls();
    for _ in 0..5 {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    }
    assert_eq!(one.last().calls(), calls);
    pool.park("two", "maintenance").unwrap();
    let asked = Instant::now();
    let error = pool.execute(&key.signing(), in_seconds(120)).unwrap_err();
    assert_eq!(error.kind(), Kind::NoReplica);
    assert!(
        asked.elapsed() < Duration::from_secs(60),
        "at once: nobody is expected back"
    );
    pool.resume("one").unwrap();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(pool.park("three", "no such").is_err());
}

#[test]
fn a_member_that_is_removed_finishes_what_it_runs() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key).latency(Duration::from_millis(50)));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    let running = submit(&pool, key.signing(), in_seconds(60));
    eventually("it runs", || pool.status().seats[0].in_flight == 1);
    pool.remove("one").unwrap();
    key.check(running.recv().unwrap().unwrap());
    assert!(pool.status().seats.is_empty());
    let error = pool.execute(&key.signing(), in_seconds(5)).unwrap_err();
    assert_eq!(error.kind(), Kind::UnknownObject);
    let two = Supply::of(move || honest("two", key));
    pool.add(two.seat("two")).unwrap();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(pool.add(two.seat("two")).is_err(), "one name, one seat");
}

#[test]
fn a_member_that_hangs_at_its_login_does_not_hold_up_the_start() {
    let key = Key::new(1);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = hsmux_token::sync::Mutex::new(wait);
    let one = Supply::new(move || {
        let _ = wait.lock().recv();
        Err(Error::lost("never there"))
    });
    let two = Supply::of(move || honest("two", key));
    // That this returns is the point: nobody releases the first.
    let pool = pool(Options::default(), vec![one.seat("one"), two.seat("two")]);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(pool.status().seats[0].state, SeatState::Connecting);
    drop(release);
}

#[test]
fn without_threads_everything_happens_on_the_callers() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let options = Options {
        threads: false,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one"), two.seat("two")]);
    assert_eq!(pool.status().objects[0].members, ["one", "two"]);
    key.check(
        submit(&pool, key.signing(), in_seconds(60))
            .recv()
            .unwrap()
            .unwrap(),
    );
    one.last().lose("gone");
    two.last().lose("gone");
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(one.connections() + two.connections() >= 3);
}

/// A change during which a member goes, and is due again before the change ends.
struct Long {
    lost: Arc<Supply>,
}

impl Changes for Long {
    fn change(&self, pool: &Pool, _: Operation, _: Instant) -> hsmux_token::Result<Outcome> {
        self.lost.last().lose("gone");
        let due = Instant::now() + Duration::from_millis(300);
        eventually("its back-off has passed", || Instant::now() > due);
        pool.prove("one")?;
        assert_eq!(self.lost.connections(), 1, "it would wait for this change");
        Ok(Outcome::Done)
    }
}

#[test]
fn without_threads_seats_connect_before_or_after_a_change() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let two = Supply::of(move || honest("two", key));
    let options = Options {
        threads: false,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one"), two.seat("two")]);
    pool.set_changes(Arc::new(Long {
        lost: Arc::clone(&two),
    }));
    let destroy = Operation::Destroy {
        object: key.id().into(),
    };
    pool.execute(&destroy, in_seconds(60)).unwrap();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(two.connections(), 2);
}

#[test]
fn a_late_attempt_to_connect_does_not_touch_the_seat_that_serves() {
    let key = Key::new(1);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(Some(held));
    let one = Supply::new(move || {
        let held = held.lock().unwrap().take();
        if let Some(held) = held {
            let _ = held.recv();
        }
        Ok(honest("one", key).build())
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    pool.park("one", "it hangs").unwrap();
    pool.resume("one").unwrap();
    eventually("the second attempt serves", || {
        !pool.status().objects.is_empty() && pool.status().objects[0].members == ["one"]
    });
    let serving = one.last();
    drop(release);
    eventually("the first attempt has come to its end", || {
        one.connections() == 2 && one.last().aborts() == 1
    });
    assert_eq!(pool.status().objects[0].members, ["one"]);
    let before = serving.calls();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(serving.calls(), before + 1);
}

#[test]
fn a_stopped_pool_answers_everybody() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    one.last().hang();
    let answers: Vec<_> = (0..3)
        .map(|_| submit(&pool, key.signing(), in_seconds(60)))
        .collect();
    drop(pool);
    for answer in answers {
        assert!(answer.recv().unwrap().is_err());
    }
}

/// What is shown is how fast callers are served: neither the proof's time nor the first operation's.
#[test]
fn the_latency_is_that_of_operations_of_callers() {
    let key = Key::new(1);
    let slow = Duration::from_secs(1);
    let one = Supply::of(move || honest("one", key).latency(slow));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    eventually("the key has proved itself", || {
        pool.catalogue().get(&key.id()).is_some()
    });
    let proved = &pool.status().seats[0];
    assert_eq!((proved.served, proved.latency_us), (0, 0));
    let sign = |latency| {
        one.last().set_latency(latency);
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        pool.status().seats[0].latency_us
    };
    assert!(sign(slow) >= 1_000_000);
    for _ in 0..20 {
        sign(Duration::from_millis(1));
    }
    let shown = sign(Duration::from_millis(1));
    assert!((1_000..500_000).contains(&shown), "{shown} us");
    assert_eq!(pool.status().seats[0].served, 22);
}

/// A member that was parked before it had shown its keys, and is taken back: its keys are waited for.
#[test]
fn keys_of_a_resumed_member_are_waited_for() {
    let key = Key::new(1);
    let refused = AtomicBool::new(true);
    let (come, called) = std::sync::mpsc::channel::<()>();
    let called = std::sync::Mutex::new(called);
    let one = Supply::new(move || {
        if refused.swap(false, Ordering::SeqCst) {
            return Err(Error::token(Kind::PinHeld, "not tried"));
        }
        called.lock().unwrap().recv().unwrap();
        Ok(honest("one", key).build())
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    assert_eq!(pool.status().seats[0].state, SeatState::Parked);
    let unknown = pool.execute(&key.signing(), in_seconds(5)).unwrap_err();
    assert_eq!(unknown.kind(), Kind::UnknownObject);
    std::thread::scope(|scope| {
        let resumed = scope.spawn(|| pool.resume("one").unwrap());
        eventually("it is no longer parked", || {
            pool.status().seats[0].state != SeatState::Parked
        });
        let signed = scope.spawn(|| pool.execute(&key.signing(), in_seconds(60)));
        eventually("the request waits", || pool.status().waiting == 1);
        come.send(()).unwrap();
        key.check(signed.join().unwrap().unwrap());
        resumed.join().unwrap();
    });
}
