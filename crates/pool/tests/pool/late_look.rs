//! A look at a token that was begun before a key went, and is told afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_pool::{Care, Connector, Options, Seat};
use hsmux_replicate::{self as replicate, Hold};
use hsmux_token::fake::FakeToken;
use hsmux_token::sync::{Condvar, Mutex};
use hsmux_token::{Batch, ObjectChanges, Operation, Outcome, Result, Snapshot, Token, TokenInfo};

use crate::vault::*;

/// A member that serves by a token of its own, and is looked at through [`Looker`].
struct Member(Arc<Looks>);

/// What becomes of the looks: the first one waits for the word, and then tells what it saw before.
#[derive(Default)]
struct Looks {
    begun: AtomicUsize,
    go_on: Mutex<bool>,
    said: Condvar,
}

struct Looker {
    token: Arc<FakeToken>,
    looks: Arc<Looks>,
}

fn token() -> Arc<FakeToken> {
    let done = |_: &Operation| Ok(Outcome::Done);
    FakeToken::builder("one").answer(done).build()
}

impl Connector for Member {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let token = token();
        token.set_objects(vec![secret(32)]);
        Ok(token)
    }

    fn care(&self) -> Care {
        Care {
            look: true,
            ..Care::default()
        }
    }

    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        let token = token();
        token.set_objects(vec![secret(32)]);
        Ok(Arc::new(Looker {
            token,
            looks: Arc::clone(&self.0),
        }))
    }
}

impl Token for Looker {
    fn info(&self) -> Arc<TokenInfo> {
        self.token.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.token.objects()
    }

    fn look(&self) -> Result<ObjectChanges> {
        if self.looks.begun.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(ObjectChanges::default());
        }
        let mut go_on = self.looks.go_on.lock();
        while !*go_on {
            self.looks.said.wait(&mut go_on);
        }
        Ok(ObjectChanges {
            is_partial: false,
            made: vec![secret(32)],
            gone: Vec::new(),
        })
    }

    fn submit(&self, batch: Batch) {
        self.token.submit(batch);
    }
}

#[test]
fn a_key_that_is_deleted_while_somebody_looks_does_not_rise_again() {
    let (key, looks) = (secret(32).id, Arc::new(Looks::default()));
    let state = tempfile::tempdir().unwrap();
    let options = Options {
        state: state.path().to_owned(),
        ..Options::default()
    };
    let seat = Seat {
        name: "one".into(),
        member: "one".into(),
        weight: 1,
        timeout: Duration::from_secs(20),
        connector: Arc::new(Member(Arc::clone(&looks))),
    };
    let (pool, _writer) = replicate::start(options, vec![seat], Hold::Always, None).unwrap();
    let begun = |count| looks.begun.load(Ordering::SeqCst) >= count;
    eventually("somebody looks", || begun(1));
    assert!(pool.catalogue().get(&key).is_some());
    let delete = Operation::Destroy { object: key.into() };
    pool.execute(&delete, in_seconds(60)).unwrap();
    assert!(pool.catalogue().get(&key).is_none());
    *looks.go_on.lock() = true;
    looks.said.notify_all();
    eventually("what it saw is old by now", || begun(4));
    assert!(pool.catalogue().get(&key).is_none());
}
