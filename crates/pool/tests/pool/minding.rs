//! Members that others change, and connections that become slow or blind while they serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_pool::{Care, Connector, Options, Pool, Replica, ReplicaState, Seat};
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Object, Operation, Outcome, Pace, Result, Token, Verb, Work, ck};

use crate::vault::*;

/// A member that wants to be looked after: its connections, and those that look.
struct Member {
    care: Care,
    make: Box<dyn Fn(usize) -> Builder + Send + Sync>,
    serving: Mutex<Vec<Arc<FakeToken>>>,
    looking: Mutex<Vec<Arc<FakeToken>>>,
    attempts: AtomicUsize,
    /// What those who look see; at first what the first connection holds.
    seen: Mutex<Option<Vec<Object>>>,
    /// What later connections say of their pace.
    pace: Mutex<Vec<Pace>>,
    /// How many connections have been made by the time that the token can do more.
    grown: AtomicUsize,
}

/// Both kinds of care.
const ALL: Care = Care {
    look: true,
    replace: true,
    cards: false,
};

impl Member {
    /// `make` gets the number of the connection, from 0.
    fn new(care: Care, make: impl Fn(usize) -> Builder + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            care,
            make: Box::new(make),
            serving: Mutex::default(),
            looking: Mutex::default(),
            attempts: AtomicUsize::new(0),
            seen: Mutex::default(),
            pace: Mutex::default(),
            grown: AtomicUsize::new(0),
        })
    }

    fn pool(self: &Arc<Self>) -> Arc<Pool> {
        pool(Options::default(), vec![self.seat("one")])
    }

    fn seat(self: &Arc<Self>, name: &str) -> Seat {
        Seat {
            name: name.into(),
            member: "one".into(),
            weight: 1,
            timeout: Duration::from_secs(20),
            connector: Arc::new(Connection(Arc::clone(self))),
        }
    }

    fn connection(&self, number: usize) -> Arc<FakeToken> {
        Arc::clone(&self.serving.lock()[number])
    }

    fn connections(&self) -> usize {
        self.serving.lock().len()
    }

    /// What others have made of the token: those who look see it, a connection that serves does not.
    fn holds_now(&self, objects: &[Object]) {
        let mut seen = self.seen.lock();
        *seen = Some(objects.to_vec());
        for token in &*self.looking.lock() {
            token.set_objects(objects.to_vec());
        }
    }
}

/// The trait is of another crate, and so is `Arc`.
struct Connection(Arc<Member>);

impl Connector for Connection {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let number = self.0.attempts.fetch_add(1, Ordering::SeqCst);
        let token = (self.0.make)(number).build();
        if number > 0 {
            token.set_pace(self.0.pace.lock().clone());
        }
        self.0.serving.lock().push(Arc::clone(&token));
        Ok(token)
    }

    fn care(&self) -> Care {
        self.0.care
    }

    fn outgrown(&self) -> Result<bool> {
        let grown = self.0.grown.load(Ordering::SeqCst);
        Ok(self.0.attempts.load(Ordering::SeqCst) <= grown)
    }

    fn scout(&self) -> Result<Arc<dyn Token>> {
        let token = (self.0.make)(0).build();
        let seen = self.0.seen.lock();
        if let Some(objects) = &*seen {
            token.set_objects(objects.clone());
        }
        self.0.looking.lock().push(Arc::clone(&token));
        Ok(token)
    }
}

fn shown(pool: &Pool, key: Key) -> bool {
    pool.catalogue().get(&key.id()).is_some()
}

fn replaced(pool: &Pool) -> u64 {
    pool.status().seats[0].replaced
}

#[test]
fn what_others_add_is_served_and_what_they_remove_leaves() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let member = Member::new(ALL, move |_| {
        holding("one", &[(old, old), (new, new)]).objects(vec![old.object()])
    });
    let pool = member.pool();
    old.check(pool.execute(&old.signing(), in_seconds(60)).unwrap());
    member.holds_now(&[old.object(), new.object()]);
    eventually("it is served", || {
        pool.execute(&new.signing(), in_seconds(60)).is_ok()
    });
    member.holds_now(&[new.object()]);
    eventually("it is gone", || !shown(&pool, old));
    let gone = pool.execute(&old.signing(), in_seconds(60)).unwrap_err();
    assert_eq!(gone.kind(), Kind::UnknownObject);
    new.check(pool.execute(&new.signing(), in_seconds(60)).unwrap());
    // Those who serve were asked for their objects once, when they came.
    assert_eq!((member.connections(), member.connection(0).reads()), (1, 1));
}

#[test]
fn what_others_add_is_read_before_it_is_asked_for() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let member = Member::new(ALL, move |_| {
        holding("one", &[(old, old), (new, new)]).objects(vec![old.object()])
    });
    let seats = vec![member.seat("one"), member.seat("one#2")];
    let pool = pool(Options::default(), seats);
    let now = [old.object(), new.object()];
    for connection in &*member.serving.lock() {
        connection.set_objects(now.to_vec());
    }
    member.holds_now(&now);
    eventually("both serve with it", || {
        let catalogue = pool.catalogue();
        let replicas = catalogue.get(&new.id()).map_or(&[][..], |e| &e.replicas);
        let serving = |replica: &&Replica| replica.state == ReplicaState::Serving;
        replicas.iter().filter(serving).count() == 2
    });
    for _ in 0..8 {
        new.check(pool.execute(&new.signing(), in_seconds(60)).unwrap());
    }
    for connection in &*member.serving.lock() {
        assert!(connection.calls() > 0);
        assert_eq!(connection.unread(), 0, "a request waited for a reading");
    }
}

#[test]
fn who_wants_no_care_gets_none() {
    let key = Key::new(1);
    let member = Member::new(Care::default(), move |_| honest("one", key));
    let pool = member.pool();
    member.connection(0).set_pace(pace(key, 20, 32));
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(member.looking.lock().is_empty());
}

#[test]
fn a_card_is_left_alone() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| {
        honest("one", key).info(|info| info.slot = Some("reader".into()))
    });
    let pool = member.pool();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert!(member.looking.lock().is_empty());
}

#[test]
fn a_connection_that_does_not_see_a_new_key_is_replaced() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let member = Member::new(ALL, move |number| {
        if number == 0 {
            let blind = holding("one", &[(old, old)]);
            return blind.objects(vec![old.object()]);
        }
        holding("one", &[(old, old), (new, new)])
    });
    let pool = member.pool();
    member.holds_now(&[old.object(), new.object()]);
    eventually("a fresh one serves", || replaced(&pool) == 1);
    eventually("it is served", || {
        pool.execute(&new.signing(), in_seconds(60)).is_ok()
    });
    old.check(pool.execute(&old.signing(), in_seconds(60)).unwrap());
    assert_eq!(member.connections(), 2);
}

/// What a connection says of its signatures with this key.
fn pace(key: Key, micros: u64, count: u64) -> Vec<Pace> {
    vec![Pace {
        work: Work::new(Verb::Sign, ck::CKM_ECDSA, 32, 64),
        key: key.id(),
        nanos: micros * 1000,
        count,
    }]
}

/// Signs, says what that takes, and so on until `done`.
fn work(pool: &Pool, token: &FakeToken, key: Key, micros: u64, done: impl Fn() -> bool) {
    let mut count = 1000;
    eventually("it is noticed", || {
        count += 1;
        token.set_pace(pace(key, micros, count));
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        done()
    });
}

#[test]
fn a_slow_connection_is_replaced_and_no_request_fails() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| honest("one", key));
    let pool = member.pool();
    let first = member.connection(0);
    first.set_pace(pace(key, 20, 32));
    *member.pace.lock() = pace(key, 21, 32);
    let asked = first.paced();
    eventually("its pace is known", || first.paced() > asked);
    work(&pool, &first, key, 60, || replaced(&pool) == 1);
    let calls = first.calls();
    let answer = submit(&pool, key.signing(), in_seconds(60));
    key.check(answer.recv().unwrap().unwrap());
    assert_eq!(first.calls(), calls);
    assert_eq!(first.aborts(), 0, "it is let go, and finishes what it runs");
}

#[test]
fn a_connection_that_is_no_slower_than_a_fresh_one_stays() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| honest("one", key));
    let pool = member.pool();
    let first = member.connection(0);
    first.set_pace(pace(key, 20, 32));
    *member.pace.lock() = pace(key, 60, 32);
    let asked = first.paced();
    eventually("its pace is known", || first.paced() > asked);
    work(&pool, &first, key, 60, || {
        member.connections() == 2 && member.connection(1).aborts() == 1
    });
    assert_eq!(replaced(&pool), 0);
    let calls = first.calls();
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(first.calls(), calls + 1);
}

/// What runs on a connection while another one takes its place goes on, and is answered.
#[test]
fn what_runs_while_a_connection_is_replaced_is_answered() {
    let [old, new] = [Key::new(1), Key::new(2)];
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let member = Member::new(ALL, move |number| {
        let held = Arc::clone(&held);
        let slow = move |operation: &Operation| -> Result<Outcome> {
            match operation {
                Operation::Use { key, data, .. } if *key == old.id().into() => {
                    let long = data.len() == 31;
                    if long && number == 0 {
                        let _ = held.lock().recv();
                    }
                    Ok(Outcome::Bytes(old.sign(&data[..]).into()))
                }
                Operation::Use { key, data, .. } if *key == new.id().into() && number > 0 => {
                    Ok(Outcome::Bytes(new.sign(data).into()))
                }
                _ => Err(Error::token(Kind::UnknownObject, "no such key")),
            }
        };
        let objects = [old, new].map(Key::object);
        let shown = if number == 0 { &objects[..1] } else { &objects };
        // A fake token without latency works on the caller's thread.
        let builder = FakeToken::builder("one").lanes(2).answer(slow);
        builder
            .objects(shown.to_vec())
            .latency(Duration::from_micros(1))
    });
    let pool = member.pool();
    eventually("it is proved", || shown(&pool, old));
    let mut long = old.signing();
    if let Operation::Use { data, .. } = &mut long {
        *data = vec![7; 31].into();
    }
    let running = submit(&pool, long, in_seconds(100));
    member.holds_now(&[old.object(), new.object()]);
    eventually("a fresh one serves", || replaced(&pool) == 1);
    new.check(pool.execute(&new.signing(), in_seconds(60)).unwrap());
    assert!(running.try_recv().is_err(), "it is not over yet");
    release.send(()).unwrap();
    running.recv().unwrap().unwrap();
    assert_eq!(member.connection(0).aborts(), 0);
}

#[test]
fn a_token_that_can_do_more_has_a_fresh_connection() {
    let key = Key::new(1);
    let care = Care {
        look: true,
        ..Care::default()
    };
    let member = Member::new(care, move |number| {
        honest("one", key).lanes(if number == 0 { 1 } else { 3 })
    });
    let pool = member.pool();
    assert_eq!(pool.status().seats[0].lanes, 1);
    member.grown.store(1, Ordering::SeqCst);
    eventually("a fresh one serves", || replaced(&pool) == 1);
    assert_eq!(pool.status().seats[0].lanes, 3);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    assert_eq!(member.connection(0).aborts(), 0, "it is let go");
}
