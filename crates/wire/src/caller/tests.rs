use std::io::Write;

use hsmux_token::Blob;

use super::*;
use crate::budget::Budgets;
use crate::count::Count;
use crate::reactor::Reactor;
use crate::server::Answerer;
use crate::{Answer, Call};

/// More than the buffers of a socket hold.
const LONG: usize = 4 << 20;

/// Whatever comes is answered at length.
struct Talkative;

impl Service for Talkative {
    fn boot(&self) -> u64 {
        1
    }

    fn open(&self, _: Peer, _: &Hello) -> Result<Arc<dyn Conversation>> {
        Ok(Arc::new(Self))
    }
}

impl Conversation for Talkative {
    fn call(&self, _: Call, answer: Answerer) {
        let long = Blob(vec![0; LONG].into());
        answer.send(&Reply::new(0, Answer::Admin(long)));
    }
}

/// What gives connections their watch; nothing comes to it.
struct Entrance(Watch);

impl Source for Entrance {
    fn ready(self: Arc<Self>, _: u16, _: EventFlags, _: &mut [u8]) {}

    fn expired(self: Arc<Self>, _: Instant) -> Option<Instant> {
        None
    }

    fn abandoned(self: Arc<Self>) {}
}

/// A connection that was greeted, and its other end.
fn greeted(reactor: &Reactor) -> (Arc<Caller>, UnixStream) {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let peer = Peer::of(&near).unwrap();
    let entrance = reactor.adopt(Entrance);
    let open = Count::default().one();
    let budgets = Budgets::default();
    let service = Arc::new(Talkative);
    let caller = Caller::admit(&entrance.0, near, peer, service, open, &budgets, 0).unwrap();
    let hello = Hello {
        oldest: VERSION,
        newest: VERSION,
        client: [0; 16],
        program: "a test".into(),
    };
    let mut bytes = Vec::new();
    frame::encode(&hello, &mut bytes).unwrap();
    far.write_all(&bytes).unwrap();
    until("it is greeted", || caller.greeted.get());
    (caller, far)
}

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(so) = so() {
            return so;
        }
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_peer_that_does_not_read_its_answer_is_cut_off() {
    let reactor = Reactor::start().unwrap();
    let (caller, mut far) = greeted(&reactor);
    // What was set for the greeting does not count.
    *caller.alarm.lock() = None;
    let mut call = Vec::new();
    frame::encode(&Call::Info, &mut call).unwrap();
    far.write_all(&call).unwrap();
    let since = until("an answer waits", || caller.outlet.waiting_since());
    let alarm = until("the reactor is told when to look", || *caller.alarm.lock());
    let end = since + READ_WITHIN;
    assert!(alarm >= end && alarm < end + READ_WITHIN);
    assert_eq!(Arc::clone(&caller).expired(since), Some(end));
    assert!(!caller.has_ended());
    assert_eq!(Arc::clone(&caller).expired(end), None);
    assert!(caller.has_ended());
}
