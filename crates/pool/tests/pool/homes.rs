//! Workers that are homes of guests are not replaced: session objects would end with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hsmux_pool::{Guest, Options, Policy, Pool};
use hsmux_token::Token;
use hsmux_token::fake::Builder;
use hsmux_token::sync::Mutex;

use crate::guests::generate;
use crate::minded::{ALL, Member, be_known, pace, replaced, slow_down};
use crate::vault::*;

/// Somebody whose home is the first seat from now on.
fn moves_in(pool: &Arc<Pool>) -> Guest {
    let guest = Guest::new(Arc::clone(pool));
    guest.execute(&generate(), in_seconds(60)).unwrap();
    guest
}

/// Two workers of one token, the first of which is to be a home.
fn two(home: &Arc<Member>, other: &Arc<Member>) -> Arc<Pool> {
    let options = Options {
        policy: Policy::RoundRobin,
        ..Options::default()
    };
    pool(options, vec![home.seat("one"), other.seat("one#2")])
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
fn a_slow_home_stays_and_another_slow_worker_does_not_wait_for_it() {
    let key = Key::new(1);
    let [home, other] = [(); 2].map(|()| Member::new(ALL, move |_| honest("one", key)));
    for member in [&home, &other] {
        *member.pace.lock() = pace(key, 21, 32);
    }
    let pool = two(&home, &other);
    let both = [home.connection(0), other.connection(0)];
    be_known(&both[1], key);
    let guest = moves_in(&pool);
    slow_down(&both, key, || each_replaced(&pool) == [0, 1]);
    assert_eq!(home.connections(), 1, "it was tried");
    drop(guest);
    slow_down(&both, key, || each_replaced(&pool) == [1, 1]);
}

#[test]
fn a_blind_home_stays_and_another_blind_worker_does_not_wait_for_it() {
    let [old, new, newest] = [1, 2, 3].map(Key::new);
    let seeing = move |keys: Vec<Key>| {
        Member::new(ALL, move |number| {
            if number == 0 {
                return holds(&keys).objects(vec![old.object()]);
            }
            holds(&[old, new, newest])
        })
    };
    // The home is the first that misses one.
    let (home, other) = (seeing(vec![old]), seeing(vec![old, new]));
    let pool = two(&home, &other);
    let guest = moves_in(&pool);
    home.holds_now(&[old.object(), new.object()]);
    eventually("the home does not see it, and the other does", || {
        let served = pool.execute(&new.signing(), in_seconds(60)).is_ok();
        let catalogue = pool.catalogue();
        let replicas = catalogue.get(&new.id()).map_or(0, |e| e.replicas.len());
        served && replicas == 1
    });
    home.holds_now(&[old.object(), new.object(), newest.object()]);
    eventually("the other one is replaced", || {
        each_replaced(&pool) == [0, 1]
    });
    assert_eq!(home.connections(), 1, "it was tried");
    drop(guest);
    eventually("nobody lives there", || each_replaced(&pool) == [1, 1]);
}

/// It would log in for nothing.
#[test]
fn no_fresh_worker_is_started_for_a_home() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |_| honest("one", key));
    let pool = member.pool();
    let looks = |times| {
        eventually("a process looks at the token", || {
            member.looking.lock().len() >= times
        });
    };
    looks(1);
    let _guest = moves_in(&pool);
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
    let _guest = moves_in(&pool);
    drop(closed);
    eventually("it serves, or is sent away", || {
        let sent_away = || member.connection(1).aborts() == 1;
        member.connections() == 2 && (replaced(&pool) == 1 || sent_away())
    });
    assert_eq!(replaced(&pool), 0);
    assert_eq!(member.connection(0).aborts(), 0);
}
