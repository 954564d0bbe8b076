//! Requests whose catalogue has changed before they get a lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hsmux_token::Token;

use super::{Acquired, Core};
use crate::job::{RequestAttempts, ScheduledWork, Waiter};
use crate::need::Need;
use crate::owner::Cost;
use crate::scheduler::Term;
use crate::vault::{Key, Supply, eventually, holding, in_seconds, pool};
use crate::{Options, SeatState};

/// Between a look at the catalogue and the lane the token is replaced by one with another key.
#[test]
fn a_request_gets_no_lane_of_a_connection_that_its_catalogue_does_not_know() {
    let (key, other) = (Key::new(1), Key::new(9));
    let connections = AtomicUsize::new(0);
    let one = Supply::new(move || {
        let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        let token = holding("one", &[(key, if first { key } else { other })]);
        let token = token.lanes(2).build();
        if !first {
            // Its proof does not end, or it would be known at once.
            token.hang();
        }
        Ok(token)
    });
    let pool = pool(Options::default(), vec![one.seat("one")]);
    key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
    let before = pool.catalogue();
    one.last().lose("pulled out");
    eventually("it is back", || {
        let state = pool.status().seats[0].state;
        one.connections() == 2 && state == SeatState::InService
    });
    let need = Need::of(&key.signing());
    let term = Term {
        deadline: in_seconds(60),
        patience: 1,
        cost: Cost::POOL,
    };
    let attempt = RequestAttempts::default();
    let mut waiting = || ScheduledWork::Caller(Waiter::new(need.clone(), term, attempt.clone()));
    let core: &Arc<Core> = &pool.core;
    let acquired = core.acquire_by(&before, &need, &attempt, term, None, &mut waiting);
    assert!(acquired.unwrap().is_none(), "it is asked for again");
    let acquired = core.acquire(&need, &attempt, term, None, waiting);
    assert!(matches!(acquired.unwrap(), Acquired::Waiting(_)));
}
