//! Members that are looked after, over fake tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hsmux_pool::{Care, Connector, Options, Pool, Seat};
use hsmux_token::fake::{Builder, FakeToken};
use hsmux_token::sync::Mutex;
use hsmux_token::{Object, OperationKind, OperationPace, Result, Token, Verb, ck};

use crate::vault::*;

/// A member that wants to be looked after: its connections, and those that look.
pub struct Member {
    care: Care,
    make: Box<dyn Fn(usize) -> Builder + Send + Sync>,
    pub serving: Mutex<Vec<Arc<FakeToken>>>,
    pub looking: Mutex<Vec<Arc<FakeToken>>>,
    pub attempts: AtomicUsize,
    /// What those who look see; at first what the first connection holds.
    seen: Mutex<Option<Vec<Object>>>,
    /// How many connections have been made by the time that the token can do more.
    pub grown: AtomicUsize,
}

/// Both kinds of care.
pub const ALL: Care = Care {
    look: true,
    replace: true,
    cards: false,
};

impl Member {
    /// `make` gets the number of the connection, from 0.
    pub fn new(care: Care, make: impl Fn(usize) -> Builder + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            care,
            make: Box::new(make),
            serving: Mutex::default(),
            looking: Mutex::default(),
            attempts: AtomicUsize::new(0),
            seen: Mutex::default(),
            grown: AtomicUsize::new(0),
        })
    }

    pub fn pool(self: &Arc<Self>) -> Arc<Pool> {
        pool(Options::default(), vec![self.seat("one")])
    }

    pub fn seat(self: &Arc<Self>, name: &str) -> Seat {
        Seat {
            name: name.into(),
            member: "one".into(),
            weight: 1,
            timeout: Duration::from_secs(20),
            connector: Arc::new(Connection(Arc::clone(self))),
        }
    }

    pub fn connection(&self, number: usize) -> Arc<FakeToken> {
        Arc::clone(&self.serving.lock()[number])
    }

    pub fn connections(&self) -> usize {
        self.serving.lock().len()
    }

    /// The same, but those who look already do not see it.
    pub fn holds_for_later(&self, objects: &[Object]) {
        *self.seen.lock() = Some(objects.to_vec());
    }

    /// What others have made of the token: those who look see it, a connection that serves does not.
    pub fn holds_now(&self, objects: &[Object]) {
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

    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        let token = (self.0.make)(0).build();
        let seen = self.0.seen.lock();
        if let Some(objects) = &*seen {
            token.set_objects(objects.clone());
        }
        self.0.looking.lock().push(Arc::clone(&token));
        Ok(token)
    }
}

pub fn replaced(pool: &Pool) -> u64 {
    pool.status().seats[0].replaced
}

/// What a connection says of its signatures with this key.
pub fn pace(key: Key, micros: u64, count: u64) -> Vec<OperationPace> {
    vec![OperationPace {
        work: OperationKind::new(Verb::Sign, ck::CKM_ECDSA, 32, 64),
        key: key.id(),
        nanos: micros * 1000,
        count,
    }]
}

/// Has a connection say that its signatures take 20 microseconds, until that is known.
pub fn be_known(token: &FakeToken, key: Key) {
    token.set_pace(pace(key, 20, 32));
    let asked = token.paced();
    eventually("its pace is known", || token.paced() > asked);
}

/// Others remove the second of two keys.
pub fn lose_a_key(member: &Member, pool: &Pool, [key, gone]: [Key; 2]) {
    member.holds_now(&[key.object()]);
    eventually("it is gone", || pool.catalogue().get(&gone.id()).is_none());
}

/// Has connections say again and again that their signatures take 60 microseconds, until it is `done`.
pub fn slow_down(tokens: &[Arc<FakeToken>], key: Key, mut done: impl FnMut() -> bool) {
    let mut count = 1000;
    eventually("it is noticed", || {
        count += 1;
        for token in tokens {
            token.set_pace(pace(key, 60, count));
        }
        done()
    });
}
