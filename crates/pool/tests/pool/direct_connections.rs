//! Connections of programs that a worker serves itself.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hsmux_pool::{Owner, Pool};
use hsmux_token::{Result, Token};
use hsmux_wire::{
    Answer, Answerer, Call, Connection, Conversation, Entrance, Greeting, Hello, Peer, Reactor,
    Reply, SPOKEN, Service, decode,
};

use crate::vault::*;
use crate::watched_member::{ALL, Member, replaced};

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

/// Programs ask again, and get a connection to the worker that serves now.
#[test]
fn connections_of_programs_end_when_their_worker_is_replaced() {
    let key = Key::new(1);
    let member = Member::new(ALL, move |number| {
        let lanes = if number == 0 { 1 } else { 3 };
        honest("one", key).lanes(lanes).takes_connections()
    });
    let pool = member.pool();
    let reactor = Reactor::start().unwrap();
    let entrance = reactor.entrance(Arc::new(PoolServer(Arc::clone(&pool))), usize::MAX);
    let [mut first, mut second] = [(); 2].map(|()| Program::at(&entrance));
    let is_handed_over = |program: &mut Program| {
        eventually("its work is known to be short", || {
            key.check(pool.execute(&key.signing(), in_seconds(60)).unwrap());
            program.is_handed_over(key)
        });
    };
    is_handed_over(&mut first);
    assert!(!first.has_ended());
    member.grown.store(1, Ordering::SeqCst);
    eventually("it ends", || first.has_ended());
    assert_eq!(replaced(&pool), 1);
    is_handed_over(&mut second);
    assert!(!second.has_ended());
}
