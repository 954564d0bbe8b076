//! Workers that have session objects of a client are not replaced: the objects would end with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hsmux_pool::{ClientSession, Options, Policy, Pool};
use hsmux_token::Token;
use hsmux_token::fake::Builder;
use hsmux_token::sync::Mutex;

use crate::client_sessions::generate;
use crate::vault::*;
use crate::watched_member::{ALL, Member, be_known, lose_a_key, replaced, slow_down};

/// A client session whose session objects live on the first seat.
fn session_on_first_seat(pool: &Arc<Pool>) -> ClientSession {
    let session = ClientSession::new(Arc::clone(pool));
    session.execute(&generate(), in_seconds(60)).unwrap();
    session
}

/// Two workers of one token. The first one is to have the session objects.
fn two(first: &Arc<Member>, other: &Arc<Member>) -> Arc<Pool> {
    let options = Options {
        policy: Policy::RoundRobin,
        ..Options::default()
    };
    pool(options, vec![first.seat("one"), other.seat("one#2")])
}

/// How often each was replaced.
fn each_replaced(pool: &Pool) -> [u64; 2] {
    let seats = pool.status().seats;
    [0, 1].map(|seat: usize| seats[seat].replaced)
}

fn holds(keys: &[Key]) -> Builder {
    let keys: Vec<_> = keys.iter().map(|key| (*key, *key)).collect();
    holding("one", &keys)
}

#[test]
fn a_slow_worker_with_session_objects_stays_and_another_does_not_wait_for_it() {
    let keys @ [key, _] = [1, 2].map(Key::new);
    let [first, other] = [(); 2].map(|()| Member::new(ALL, move |_| holds(&keys)));
    let pool = two(&first, &other);
    let both = [first.connection(0), other.connection(0)];
    for connection in &both {
        be_known(connection, key);
    }
    lose_a_key(&first, &pool, keys);
    let session = session_on_first_seat(&pool);
    slow_down(&both, key, || each_replaced(&pool) == [0, 1]);
    assert_eq!(first.connections(), 1, "it was tried");
    drop(session);
    slow_down(&both, key, || each_replaced(&pool) == [1, 1]);
}

#[test]
fn a_blind_worker_with_session_objects_stays_and_another_does_not_wait_for_it() {
    let [old, new, newest] = [1, 2, 3].map(Key::new);
    let seeing = move |keys: Vec<Key>| {
        Member::new(ALL, move |number| {
            if number == 0 {
                return holds(&keys).objects(vec![old.object()]);
            }
            holds(&[old, new, newest])
        })
    };
    // The worker with the session objects is the first that misses a key.
    let (first, other) = (seeing(vec![old]), seeing(vec![old, new]));
    let pool = two(&first, &other);
    let session = session_on_first_seat(&pool);
    first.holds_now(&[old.object(), new.object()]);
    eventually("only the other worker sees the key", || {
        let served = pool.execute(&new.signing(), in_seconds(60)).is_ok();
        let catalogue = pool.catalogue();
        let replicas = catalogue.get(&new.id()).map_or(0, |e| e.replicas.len());
        served && replicas == 1
    });
    first.holds_now(&[old.object(), new.object(), newest.object()]);
    eventually("the other one is replaced", || {
        each_replaced(&pool) == [0, 1]
    });
    assert_eq!(first.connections(), 1, "it was tried");
    drop(session);
    eventually("nobody lives there", || each_replaced(&pool) == [1, 1]);
}

/// It would log in for nothing.
#[test]
fn no_fresh_worker_is_started_for_one_with_session_objects() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| honest("one", key));
    let pool = member.pool();
    let looks = |times| {
        eventually("a process looks at the token", || {
            member.looking.lock().len() >= times
        });
    };
    looks(1);
    let _session = session_on_first_seat(&pool);
    member.grown.store(1, Ordering::SeqCst);
    // After each attempt to replace a worker it is another process.
    looks(2);
    assert_eq!(member.connections(), 1);
}

#[test]
fn a_fresh_worker_does_not_serve_where_somebody_has_moved_in_meanwhile() {
    let key = Key::new(1);
    let gate = Arc::new(Mutex::new(()));
    let door = Arc::clone(&gate);
    let member = Member::new(ALL, move |number| {
        if number > 0 {
            drop(door.lock());
        }
        honest("one", key).lanes(if number == 0 { 1 } else { 3 })
    });
    let pool = member.pool();
    let closed = gate.lock();
    member.grown.store(1, Ordering::SeqCst);
    eventually("a fresh one is on its way", || {
        member.attempts.load(Ordering::SeqCst) == 2
    });
    let _session = session_on_first_seat(&pool);
    drop(closed);
    eventually("it serves, or is sent away", || {
        let sent_away = || member.connection(1).aborts() == 1;
        member.connections() == 2 && (replaced(&pool) == 1 || sent_away())
    });
    assert_eq!(replaced(&pool), 0);
    assert_eq!(member.connection(0).aborts(), 0);
}
