//! A token at the other end of lanes.

mod common;

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use common::*;
use hsmux_token::{Batch, Error, Kind, Operation, Outcome, Result, Snapshot, Token, TokenInfo};
use hsmux_wire::{Answer, Call, Connection, Item, Reactor, frame, serve_lane};

#[test]
fn more_requests_than_lanes_are_all_answered() {
    let reactor = Reactor::start().unwrap();
    let token = remote(&reactor, 3);
    let (requests, told): (Batch, Vec<_>) = (0..500_u32)
        .map(|n| request(sign(&n.to_le_bytes()), LONG))
        .unzip();
    token.submit(requests);
    for (n, told) in told.iter().enumerate() {
        let n = u32::try_from(n).unwrap();
        let bytes = heard(told).unwrap().into_bytes().unwrap();
        assert_eq!(bytes, n.to_le_bytes().as_slice());
    }
}

/// Threads and the reactor write to the same lanes: whoever is first in the table is first on the wire.
#[test]
fn everybody_gets_the_answer_to_the_own_request() {
    let reactor = Reactor::start().unwrap();
    let token = remote(&reactor, 2);
    let ask = |thread: u32| {
        for round in 0..40_u32 {
            let number = |n: u32| (thread << 24 | round << 8 | n).to_le_bytes();
            let told: Vec<_> = (0..20)
                .map(|n| submit(&token, sign(&number(n)), LONG))
                .collect();
            for (n, told) in (0..).zip(&told) {
                let bytes = heard(told).unwrap().into_bytes().unwrap();
                assert_eq!(bytes, number(n).as_slice());
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let ask = &ask;
            scope.spawn(move || ask(thread));
        }
    });
}

/// How many bytes wait at the far end of a lane.
fn unread(lane: &UnixStream) -> usize {
    let mut bytes = [0; 4096];
    let peeked = rustix::net::recv(
        lane,
        &mut bytes[..],
        rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT,
    );
    peeked.map_or(0, |(read, _)| read)
}

#[test]
fn frames_stand_behind_others_when_no_lane_is_free() {
    let reactor = Reactor::start().unwrap();
    let (token, far) = unserved(&reactor, 2);
    let sizes = || {
        let mut sizes = [unread(&far[0]), unread(&far[1])];
        sizes.sort_unstable();
        sizes
    };
    let mut told = vec![submit(&token, sign(b"1"), LONG)];
    until("the first frame is out", || sizes()[1] > 0);
    let [_, frame] = sizes();
    // Four on each lane, evenly.
    let evenly = [
        [1, 1],
        [1, 2],
        [2, 2],
        [2, 3],
        [3, 3],
        [3, 4],
        [4, 4],
        [4, 4],
    ];
    for expected in evenly {
        told.push(submit(&token, sign(b"1"), LONG));
        until("so many frames are out", || {
            sizes() == expected.map(|frames| frames * frame)
        });
    }
}

/// Counts how many run at once. The first to come wait until all lanes are at work.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Token for Crowd {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::default())
    }

    fn submit(&self, _: Batch) {}

    fn execute(&self, _: &Operation, _: Instant) -> Result<Outcome> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        until("four run", || self.most.load(Ordering::SeqCst) >= 4);
        std::thread::sleep(Duration::from_millis(5));
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Outcome::Done)
    }
}

#[test]
fn each_lane_runs_one_at_a_time_and_all_lanes_run() {
    let reactor = Reactor::start().unwrap();
    let crowd = Arc::new(Crowd::default());
    let served: Arc<dyn Token> = crowd.clone();
    let token = remote_of(&reactor, 4, 2, &served);
    let told: Vec<_> = (0..40).map(|_| submit(&token, sign(b""), LONG)).collect();
    for told in &told {
        heard(told).unwrap();
    }
    assert_eq!(crowd.most.load(Ordering::SeqCst), 4);
}

#[test]
fn those_that_wait_together_may_travel_together() {
    let reactor = Reactor::start().unwrap();
    let echo: Arc<dyn Token> = Arc::new(Echo);
    let token = remote_of(&reactor, 1, 16, &echo);
    let told: Vec<_> = (0..100_u8)
        .map(|n| submit(&token, sign(&[n]), LONG))
        .collect();
    for (n, told) in told.iter().enumerate() {
        let bytes = heard(told).unwrap().into_bytes().unwrap();
        assert_eq!(usize::from(bytes[0]), n);
    }
}

/// Answers the operations of a frame from the last to the first, and notes the most.
#[derive(Default)]
struct Backwards(AtomicUsize);

impl Token for Backwards {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::default())
    }

    fn submit(&self, _: Batch) {}

    fn execute_all(
        &self,
        operations: &[(Operation, Instant)],
        tell: &mut dyn FnMut(usize, Result<Outcome>),
    ) {
        self.0.fetch_max(operations.len(), Ordering::SeqCst);
        for (place, (operation, deadline)) in operations.iter().enumerate().rev() {
            tell(place, Echo.execute(operation, *deadline));
        }
    }
}

#[test]
fn a_worker_answers_frames_and_their_operations_in_their_order() {
    let backwards = Arc::new(Backwards::default());
    let (near, far) = UnixStream::pair().unwrap();
    let mut lane = Connection::new(near);
    for n in 0..20_u8 {
        let item = |k: u8| Item {
            behalf: None,
            operation: sign(&[n, k]),
            remaining_us: u64::MAX,
        };
        let call = Call::Execute((0..n % 3).map(item).collect());
        lane.write(&call, Some(soon())).unwrap();
    }
    let token = Arc::clone(&backwards);
    let serving = std::thread::spawn(move || serve_lane(far, 2, &*token));
    for n in 0..20_u8 {
        let frame = lane.read(frame::MAX_FRAME, Some(soon())).unwrap();
        let reply = frame::decode_reply(2, &frame.into()).unwrap();
        let Answer::Results(results) = reply.answer else {
            panic!("{reply:?}");
        };
        let bytes = results
            .into_iter()
            .map(|r| r.unwrap().into_bytes().unwrap());
        let bytes: Vec<_> = bytes.collect();
        let expected: Vec<_> = (0..n % 3).map(|k| vec![n, k]).collect();
        assert_eq!(bytes, expected);
    }
    drop(lane);
    serving.join().unwrap().unwrap();
    let most = backwards.0.load(Ordering::SeqCst);
    assert_eq!(most, 2, "a frame is carried out by itself");
}

#[test]
fn a_deadline_is_a_day_away_at_most() {
    let (near, far) = UnixStream::pair().unwrap();
    let (tell, told) = mpsc::channel();
    let token = Doing::arc(move |operation, deadline| {
        tell.send(deadline).unwrap();
        Echo.execute(operation, deadline)
    });
    let serving = std::thread::spawn(move || serve_lane(far, 2, &*token));
    let mut lane = Connection::new(near);
    let item = Item {
        behalf: None,
        operation: sign(b"a"),
        remaining_us: u64::MAX,
    };
    lane.write(&Call::Execute(vec![item]), Some(soon()))
        .unwrap();
    lane.read(frame::MAX_FRAME, Some(soon())).unwrap();
    let day = Duration::from_secs(24 * 3600);
    assert!(told.recv_timeout(LONG).unwrap() <= Instant::now() + day);
    drop(lane);
    serving.join().unwrap().unwrap();
}

#[test]
fn an_error_of_the_token_comes_back_as_it_was() {
    let reactor = Reactor::start().unwrap();
    let token = remote(&reactor, 1);
    let template = hsmux_token::Attributes::default();
    let create = Operation::Create {
        template,
        near: None,
    };
    let error = token.execute(&create, soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert_eq!(error.to_string(), "C_CreateObject");
}

#[test]
fn deadlines_hold_for_what_runs_and_for_what_waits() {
    let reactor = Reactor::start().unwrap();
    let (token, _far) = unserved(&reactor, 1);
    let begun = Instant::now();
    let running = submit(&token, sign(b"1"), Duration::from_millis(60));
    let waiting = submit(&token, sign(b"2"), Duration::from_millis(30));
    let later = submit(&token, sign(b"3"), LONG);
    for (told, how) in [
        (&waiting, "waiting for a lane"),
        (&running, "still running"),
    ] {
        let error = heard(told).unwrap_err();
        assert_eq!(error.kind(), Kind::Deadline);
        assert!(error.to_string().contains(how), "{error}");
    }
    assert!(begun.elapsed() < PATIENCE / 2);
    assert!(later.try_recv().is_err(), "its time has not come");
    token.abort("the test is over");
    assert_eq!(heard(&later).unwrap_err().kind(), Kind::Lost);
}

#[test]
fn the_end_of_a_lane_is_the_end_of_the_token() {
    let reactor = Reactor::start().unwrap();
    let (token, mut far) = unserved(&reactor, 2);
    let (tell, lost) = mpsc::channel::<Error>();
    token.on_lost(Box::new(move |error| tell.send(error).unwrap()));
    let told: Vec<_> = (0..5).map(|_| submit(&token, sign(b""), LONG)).collect();
    drop(far.remove(0));
    for told in &told {
        let error = heard(told).unwrap_err();
        assert_eq!(error.kind(), Kind::Lost);
        assert!(error.ends_connection());
    }
    let error = lost.recv_timeout(LONG).unwrap();
    assert!(error.to_string().contains("the worker of test"), "{error}");

    let error = token.execute(&sign(b""), soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    assert_eq!(token.objects().unwrap_err().kind(), Kind::Lost);
    let (tell, lost) = mpsc::channel::<Error>();
    token.on_lost(Box::new(move |error| tell.send(error).unwrap()));
    lost.recv_timeout(LONG).expect("told at once");
}

#[test]
fn a_worker_that_answers_nonsense_is_lost() {
    use std::io::Write as _;
    let reactor = Reactor::start().unwrap();
    for nonsense in [
        &b"\x01\0\0\0\xff"[..],
        b"\xff\xff\xff\xff",
        b"\x02\0\0\0\x82\x00",
    ] {
        let (token, mut far) = unserved(&reactor, 1);
        let told = submit(&token, sign(b""), LONG);
        far[0].write_all(nonsense).unwrap();
        drop(far);
        assert_eq!(heard(&told).unwrap_err().kind(), Kind::Lost);
    }
}

#[test]
fn dropping_the_token_ends_its_lanes() {
    use std::io::Read as _;
    let reactor = Reactor::start().unwrap();
    let (token, mut far) = unserved(&reactor, 2);
    drop(token);
    for far in &mut far {
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn an_operation_too_long_for_a_frame_leaves_its_lane_free() {
    let reactor = Reactor::start().unwrap();
    let token = remote(&reactor, 1);
    let error = token
        .execute(&sign(&vec![0; 17 << 20]), soon())
        .unwrap_err();
    assert!(!error.ends_connection(), "{error}");
    let after = token.execute(&sign(b"x"), soon());
    assert_eq!(after.unwrap().into_bytes().unwrap(), "x");
}
