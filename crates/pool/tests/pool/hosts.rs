//! Members that are other hosts, and client sessions of other hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hsmux_pool::{ClientSession, Connector, Options, Owner, Pool, Seat};
use hsmux_token::{Error, Kind, Operation, Result, Token};

use crate::vault::*;

/// Another host's token.
struct Far(Arc<dyn Connector>);

impl Connector for Far {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        self.0.connect()
    }

    fn remote(&self) -> bool {
        true
    }
}

fn far(seat: Seat) -> Seat {
    Seat {
        connector: Arc::new(Far(Arc::clone(&seat.connector))),
        ..seat
    }
}

/// `near` holds the first key, `far` both.
fn near_and_far(one: Key, two: Key) -> Arc<Pool> {
    let near = Supply::of(move || honest("near", one).lanes(2));
    let away = Supply::of(move || holding("far", &[(one, one), (two, two)]).lanes(3));
    pool(
        Options::default(),
        vec![near.seat("near"), far(away.seat("far"))],
    )
}

#[test]
fn another_host_is_served_by_tokens_of_this_one_alone() {
    let (one, two) = (Key::new(1), Key::new(2));
    let pool = near_and_far(one, two);
    let sign = |session: &ClientSession, key: Key| session.execute(&key.signing(), in_seconds(60));
    let application = ClientSession::new(Arc::clone(&pool));
    one.check(sign(&application, one).unwrap());
    two.check(sign(&application, two).unwrap());

    let host = ClientSession::of(Arc::clone(&pool), Owner::Host(1));
    one.check(sign(&host, one).unwrap());
    assert_eq!(sign(&host, two).unwrap_err().kind(), Kind::NoReplica);
    pool.park("near", "a test").unwrap();
    one.check(sign(&application, one).unwrap());
    assert_eq!(sign(&host, one).unwrap_err().kind(), Kind::NoReplica);
}

#[test]
fn what_is_offered_to_other_hosts_is_this_ones_own() {
    let (one, two) = (Key::new(1), Key::new(2));
    let pool = near_and_far(one, two);
    let catalogue = pool.catalogue();
    let own = |key: Key| catalogue.is_own(catalogue.get(&key.id()).unwrap());
    assert!(own(one) && !own(two));
    assert_eq!((catalogue.info.lanes, catalogue.own.lanes), (5, 2));
    let seats = pool.status().seats;
    assert_eq!((seats[0].remote, seats[1].remote), (false, true));
}

/// What would leave another host's token, wrapped, is not asked of it.
#[test]
fn no_key_of_another_host_is_taken_out() {
    let (one, two) = (Key::new(1), Key::new(2));
    let pool = near_and_far(one, two);
    let wrap = Operation::Wrap {
        wrapping: two.id().into(),
        mechanism: hsmux_token::Mechanism::plain(hsmux_token::ck::CKM_ECDSA),
        key: two.id().into(),
    };
    let refused = pool.execute(&wrap, in_seconds(60)).unwrap_err();
    assert_eq!(refused.kind(), Kind::NoReplica, "{refused}");
}

/// A pool behind a pool: keys of a member that is away there may come back.
#[test]
fn a_pool_lacks_no_key_while_a_member_of_its_member_is_away() {
    let (one, two) = (Key::new(1), Key::new(2));
    let is_away = Arc::new(AtomicBool::new(false));
    let stays = Supply::of(move || honest("a", one));
    let away = Arc::clone(&is_away);
    let goes = Supply::new(move || {
        let gone = away.load(Ordering::SeqCst).then(|| Error::lost("a test"));
        gone.map_or_else(|| Ok(honest("b", two).build()), Err)
    });
    let inner = pool(Options::default(), vec![stays.seat("a"), goes.seat("b")]);
    let outer = || {
        let token = Arc::clone(&inner) as Arc<dyn Token>;
        let seat = Seat {
            name: "inner".into(),
            member: "inner".into(),
            weight: 1,
            timeout: Duration::from_secs(20),
            connector: Arc::new(move || Ok(Arc::clone(&token))),
        };
        pool(Options::default(), vec![seat]).catalogue()
    };
    let absent = Key::new(3).id();
    assert!(outer().lacks(&absent));
    is_away.store(true, Ordering::SeqCst);
    goes.last().lose("a test");
    eventually("it is away", || !outer().lacks(&absent));
    is_away.store(false, Ordering::SeqCst);
    eventually("it is back", || outer().lacks(&absent));
}
