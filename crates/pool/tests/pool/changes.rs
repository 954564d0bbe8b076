//! Changes that come all at once.

use std::sync::Arc;
use std::time::Instant;

use hsmux_pool::{Changes, Options, Pool};
use hsmux_token::sync::Mutex;
use hsmux_token::{Attribute, Blob, Kind, Operation, Outcome, Token, ck};

use crate::vault::*;

/// Carries out nothing, while the test holds the lock; who did it is written down.
#[derive(Default)]
struct Held(Mutex<Vec<std::thread::ThreadId>>);

impl Changes for Held {
    fn change(&self, _: &Pool, _: Operation, _: Instant) -> hsmux_token::Result<Outcome> {
        self.0.lock().push(std::thread::current().id());
        Ok(Outcome::Done)
    }
}

#[test]
fn changes_wait_in_a_queue_for_one_thread() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let queue = 4;
    let options = Options {
        queue,
        ..Options::default()
    };
    let pool = pool(options, vec![one.seat("one")]);
    let held = Arc::new(Held::default());
    pool.set_changes(Arc::clone(&held) as Arc<dyn Changes>);
    let destroy = || Operation::Destroy {
        object: key.id().into(),
    };
    let under_way = held.0.lock();
    let answers: Vec<_> = (0..3000)
        .map(|_| submit(&pool, destroy(), in_seconds(60)))
        .collect();
    let waiting = pool.status().changes;
    assert!([queue - 1, queue].contains(&waiting), "{waiting}");
    drop(under_way);
    let results: Vec<_> = answers.iter().map(|a| a.recv().unwrap()).collect();
    let refused: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    // One was under way, unless the thread was slow to start.
    assert!([queue, queue + 1].contains(&(3000 - refused.len())));
    assert!(refused.iter().all(|error| error.kind() == Kind::Busy));
    let threads = held.0.lock().clone();
    assert!(threads.iter().all(|thread| *thread == threads[0]));
    // And the next finds a thread again.
    submit(&pool, destroy(), in_seconds(60))
        .recv()
        .unwrap()
        .unwrap();
}

#[test]
fn a_template_that_can_be_read_in_two_ways_reaches_nobody() {
    let key = Key::new(1);
    let one = Supply::of(move || honest("one", key));
    let pool = pool(Options::default(), vec![one.seat("one")]);
    let flag = |value: u8| Attribute {
        kind: ck::CKA_TOKEN,
        value: Blob::from(vec![value]),
    };
    let operation = Operation::Create {
        template: hsmux_token::Attributes(vec![flag(0), flag(1)]),
        near: None,
    };
    let calls = one.last().calls();
    let submitted = submit(&pool, operation.clone(), in_seconds(5));
    for result in [
        submitted.recv().unwrap(),
        pool.execute(&operation, in_seconds(5)),
    ] {
        assert_eq!(result.unwrap_err().to_rv(), ck::CKR_TEMPLATE_INCONSISTENT);
    }
    assert_eq!(one.last().calls(), calls);
}
