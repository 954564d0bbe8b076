//! Administrators whose calls meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_token::fake::FakeToken;
use hsmux_token::{Result, Token};

use super::Pool;
use crate::record::LifeState;
use crate::{Options, Seat};

fn seat(name: &str, connections: &Arc<AtomicUsize>) -> Seat {
    let (label, connections) = (name.to_owned(), Arc::clone(connections));
    Seat {
        name: name.into(),
        member: name.into(),
        weight: 1,
        timeout: Duration::from_secs(20),
        connector: Arc::new(move || -> Result<Arc<dyn Token>> {
            connections.fetch_add(1, Ordering::SeqCst);
            Ok(FakeToken::builder(&label).build())
        }),
    }
}

/// Who resumes has found the seat, and seen that it rests; meanwhile another one removes it.
#[test]
fn a_seat_that_is_removed_while_it_is_resumed_stays_removed() {
    let connections = Arc::default();
    let pool = Pool::start(Options::default(), vec![seat("one", &connections)]).unwrap();
    pool.park("one", "for a moment").unwrap();
    let found = pool.core.record(0).unwrap();
    pool.remove("one").unwrap();
    pool.add(seat("two", &Arc::default())).unwrap();
    pool.core.begin(&found, |_| true);
    assert!(matches!(found.life.lock().state, LifeState::Removed));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    pool.remove("two").unwrap();
    let catalogue = pool.catalogue();
    assert!(catalogue.expected.is_empty() && catalogue.unsettled.is_empty());
}
