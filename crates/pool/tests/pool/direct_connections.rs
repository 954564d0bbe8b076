//! Connections of programs that a worker serves itself, and the comparison of that worker with a fresh one.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{slice, thread};

use hsmux_pool::{Owner, Pool};
use hsmux_token::sync::Mutex;
use hsmux_token::{Result, Token};
use hsmux_wire::{
    Answer, Answerer, Call, Connection, Conversation, Entrance, Greeting, Hello, Peer, Reactor,
    Reply, SPOKEN, Service, decode,
};

use crate::vault::*;
use crate::watched_member::{ALL, Member, be_known, pace, replaced, slow_down};

/// Hands over every connection that asks for it.
struct PoolServer(Arc<Pool>);

impl Service for PoolServer {
    fn boot(&self) -> u64 {
        1
    }

    fn open(&self, _: Peer, _: &Hello) -> Result<Arc<dyn Conversation>> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
}

impl Conversation for PoolServer {
    fn call(&self, call: Call, answer: Answerer) {
        if let Call::HandOver(key) = call {
            let pass = |handed| self.0.hand_over(key, handed, Owner::Service);
            answer.hand_over(pass, |answer| Reply::new(0, answer));
        }
    }
}

/// A program's connection.
struct Program(Connection);

impl Program {
    fn at(entrance: &Entrance) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        entrance.take(far).unwrap();
        let mut connection = Connection::new(near);
        let hello = Hello {
            oldest: *SPOKEN.start(),
            newest: *SPOKEN.end(),
            client: [1; 16],
            program: "test".into(),
        };
        let greeting = connection.exchange(&hello, Some(in_seconds(60))).unwrap();
        assert!(matches!(decode(greeting), Ok(Greeting::Welcome(_))));
        Self(connection)
    }

    /// Asks for a worker; `None`: the connection has ended.
    fn ask(&mut self, key: Key) -> Option<Answer> {
        let call = Call::HandOver(key.id());
        let answer = self.0.exchange(&call, Some(in_seconds(60))).ok()?;
        Some(decode::<Reply>(answer).unwrap().answer)
    }

    fn is_handed_over(&mut self, key: Key) -> bool {
        matches!(self.ask(key), Some(Answer::Done))
    }

    fn has_ended(&self) -> bool {
        let mut stream = self.0.stream();
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_ok_and(|read| read == 0)
    }
}

/// Connections that a worker is given wait here.
#[derive(Default)]
struct Gate {
    given: AtomicUsize,
    open: Mutex<()>,
}

impl Gate {
    fn pass(&self) {
        self.given.fetch_add(1, Ordering::SeqCst);
        drop(self.open.lock());
    }
}

/// What programs ask of it would count against it.
#[test]
fn a_worker_that_is_compared_with_a_fresh_one_serves_no_program_itself() {
    let (key, gate) = (Key::new(1), Arc::new(Gate::default()));
    let before = Arc::clone(&gate);
    let member = Member::new(ALL, move |_| {
        let before = Arc::clone(&before);
        honest("one", key).takes_connections(move || before.pass())
    });
    // The fresh one is no better: the worker stays.
    *member.pace.lock() = pace(key, 60, 32);
    let pool = member.pool();
    let worker = member.connection(0);
    be_known(&worker, key);
    let reactor = Reactor::start().unwrap();
    let entrance = reactor.entrance(Arc::new(PoolServer(Arc::clone(&pool))), usize::MAX);
    let [mut served, mut chosen, mut late] = [(); 3].map(|()| Program::at(&entrance));
    eventually("its work is known to be short", || {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        served.is_handed_over(key)
    });
    thread::scope(|scope| {
        let closed = gate.open.lock();
        let asks = scope.spawn(move || chosen.ask(key));
        eventually("a second one is given to it", || {
            gate.given.load(Ordering::SeqCst) == 2
        });
        assert!(!served.has_ended());
        worker.hang();
        let calls = worker.calls();
        slow_down(slice::from_ref(&worker), key, || worker.calls() > calls);
        assert!(served.has_ended());
        drop(closed);
        let answer = asks.join().unwrap();
        assert!(answer.is_none(), "{answer:?}");
    });
    assert!(matches!(late.ask(key), Some(Answer::Failed(_))));
    worker.heal();
    eventually("it serves programs again", || {
        key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
        late.is_handed_over(key)
    });
    assert_eq!(replaced(&pool), 0);
}
