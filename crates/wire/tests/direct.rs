//! Connections that were handed over, and who of several that hear them takes what comes.

mod common;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use hsmux_token::{Batch, Kind, ObjectId, Operation, Outcome, Result, Snapshot, Token, TokenInfo};
use hsmux_wire::{
    Answer, Call, Connection, Direct, Item, ProgramConnection, Reply, VERSION, decode, frame,
};

#[test]
fn a_frame_that_comes_byte_by_byte_ends_its_connection() {
    let workers = Workers::of([Arc::new(Echo) as Arc<dyn Token>]);
    let (mut near, far) = UnixStream::pair().unwrap();
    let key = ObjectId::of_certificate(b"a key");
    let connection = ProgramConnection::new(far, VERSION, key, Arc::clone(&workers.open)).unwrap();
    let direct = &workers.all[0].0;
    direct.admit(1, Arc::new(connection), false, true).unwrap();
    let frame = [1000_u32.to_le_bytes().as_slice(), &[0; 1000]].concat();
    let until = soon();
    let mut written = 0;
    while direct.open() > 0 {
        assert!(Instant::now() < until, "it is open after {written} bytes");
        if let Some(byte) = frame.get(written) {
            // Once it has ended, a write fails.
            let _ = near.write_all(&[*byte]);
            written += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(written < frame.len(), "it ended before the frame was whole");
    workers.stop();
}

/// Says what it begins, and goes on when it is told to.
struct Gated {
    begins: mpsc::Sender<Vec<u8>>,
    goes_on: Barrier,
}

impl Token for Gated {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Echo.objects()
    }

    fn submit(&self, batch: Batch) {
        Echo.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let outcome = Echo.execute(operation, deadline)?;
        if let Outcome::Bytes(data) = &outcome {
            self.begins.send(data.to_vec()).unwrap();
            self.goes_on.wait();
        }
        Ok(outcome)
    }
}

/// Threads that each serve a token on the same connections, as workers do.
struct Workers {
    all: Vec<(Arc<Direct>, thread::JoinHandle<()>)>,
    open: Arc<AtomicUsize>,
}

impl Workers {
    fn of(tokens: impl IntoIterator<Item = Arc<dyn Token>>) -> Self {
        let open = Arc::new(AtomicUsize::new(0));
        let serve = |token: Arc<dyn Token>| {
            let direct = Arc::new(Direct::new(Arc::clone(&open)).unwrap());
            let serving = Arc::clone(&direct);
            let thread = thread::spawn(move || serving.serve(&*token, &Unwatched).unwrap());
            (direct, thread)
        };
        Self {
            all: tokens.into_iter().map(serve).collect(),
            open,
        }
    }

    /// A program's end of a connection that all of them hear, the first one from before on.
    fn connect(&self, number: u64) -> Connection {
        self.connect_over(number, UnixStream::pair().unwrap())
    }

    /// The same over these two ends.
    fn connect_over(&self, number: u64, (near, far): (UnixStream, UnixStream)) -> Connection {
        let key = ObjectId::of_certificate(b"a key");
        let connection = ProgramConnection::new(far, VERSION, key, Arc::clone(&self.open)).unwrap();
        let connection = Arc::new(connection);
        self.all[0]
            .0
            .admit(number, Arc::clone(&connection), false, true)
            .unwrap();
        for (direct, _) in &self.all {
            let connection = Arc::clone(&connection);
            direct.admit(number, connection, true, false).unwrap();
            assert!(direct.find(number).is_some());
        }
        Connection::new(near)
    }

    fn stop(self) {
        for (direct, thread) in self.all {
            direct.stop();
            thread.join().unwrap();
        }
        assert_eq!(self.open.load(Ordering::SeqCst), 0);
    }
}

fn ask(connection: &mut Connection, data: &[u8]) -> Vec<u8> {
    let item = Item {
        behalf: None,
        operation: sign(data),
        remaining_us: LONG.as_micros() as u64,
    };
    let answer = connection
        .exchange(&Call::Execute(vec![item]), Some(soon()))
        .unwrap();
    match decode::<Reply>(answer).unwrap().answer {
        Answer::Results(mut results) => results
            .pop()
            .unwrap()
            .unwrap()
            .into_bytes()
            .unwrap()
            .to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_comes_while_one_works_is_taken_by_another() {
    let (begins, begun) = mpsc::channel();
    let token = Arc::new(Gated {
        begins,
        goes_on: Barrier::new(4),
    });
    let workers = Workers::of([(); 3].map(|()| Arc::clone(&token) as Arc<dyn Token>));
    let mut connections = [1, 2, 3].map(|number| workers.connect(number));
    thread::scope(|scope| {
        // Nobody goes on before all three have begun.
        for (number, connection) in (1..).zip(&mut connections) {
            scope.spawn(move || assert_eq!(ask(connection, &[number]), [number]));
            assert_eq!(begun.recv_timeout(LONG).unwrap(), [number]);
        }
        token.goes_on.wait();
    });
    workers.stop();
}

#[test]
fn each_use_is_answered_once_whoever_takes_it() {
    let workers = Workers::of([(); 3].map(|()| Arc::new(Echo) as Arc<dyn Token>));
    // Whole frames, however long they are.
    let lengths = [0, 1, 200, 9_000, 20_000, 27_000, 64, 33];
    thread::scope(|scope| {
        for (number, length) in (1..).zip(lengths) {
            let mut connection = workers.connect(number);
            scope.spawn(move || {
                for n in 0..500_u64 {
                    let mut data = vec![number as u8; length];
                    data.extend(n.to_le_bytes());
                    assert_eq!(ask(&mut connection, &data), data);
                }
            });
        }
    });
    workers.stop();
}

#[test]
fn it_ends_for_all_when_one_ends_it() {
    let workers = Workers::of([(); 2].map(|()| Arc::new(Echo) as Arc<dyn Token>));
    let mut connection = workers.connect(1);
    let unheard = Call::Execute(Vec::new());
    assert!(connection.exchange(&unheard, Some(soon())).is_err());
    let until = soon();
    while workers.all.iter().any(|(direct, _)| direct.open() > 0) {
        assert!(Instant::now() < until, "it is heard no more");
        thread::yield_now();
    }
    workers.stop();
}

/// Says what it begins, and ends it when it is told to.
struct OneByOne {
    begins: mpsc::Sender<u8>,
    ends: Mutex<mpsc::Receiver<()>>,
}

impl Token for OneByOne {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Echo.objects()
    }

    fn submit(&self, batch: Batch) {
        Echo.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let outcome = Echo.execute(operation, deadline)?;
        if let Outcome::Bytes(data) = &outcome {
            self.begins.send(data[0]).unwrap();
            self.ends.lock().unwrap().recv().unwrap();
        }
        Ok(outcome)
    }
}

/// A worker that begins the next use when it is told to end one, and what it begins.
fn one_by_one() -> (Workers, mpsc::Receiver<u8>, mpsc::Sender<()>) {
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let token = OneByOne {
        begins,
        ends: Mutex::new(ends),
    };
    let workers = Workers::of([Arc::new(token) as Arc<dyn Token>]);
    (workers, begun, end)
}

/// Two ends of a connection, which are another user's to the kernel: credentials are a thread's own.
fn pair_of(uid: u32) -> (UnixStream, UnixStream) {
    let as_user = || {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        UnixStream::pair().unwrap()
    };
    thread::scope(|scope| scope.spawn(as_user).join().unwrap())
}

#[test]
fn many_connections_of_one_user_have_as_many_turns_as_one_of_another() {
    let (workers, begun, end) = one_by_one();
    let call = |number: u8| {
        Call::Execute(vec![Item {
            behalf: None,
            operation: sign(&[number]),
            remaining_us: LONG.as_micros() as u64,
        }])
    };
    let mut many: Vec<_> = (1..=20)
        .map(|number| (number, workers.connect_over(number, pair_of(20_001))))
        .collect();
    let mut one = workers.connect_over(99, pair_of(20_002));
    for (number, connection) in &mut many {
        connection
            .write(&call(*number as u8), Some(soon()))
            .unwrap();
    }
    let next = || begun.recv_timeout(LONG).unwrap();
    let mut of_many = vec![next()];
    for _ in 0..8 {
        // While one of the many runs: it is the next, each time.
        one.write(&call(99), Some(soon())).unwrap();
        end.send(()).unwrap();
        assert_eq!(next(), 99, "after {of_many:?}");
        end.send(()).unwrap();
        one.read(frame::MAX_FRAME, Some(soon())).unwrap();
        of_many.push(next());
    }
    while of_many.len() < many.len() {
        end.send(()).unwrap();
        of_many.push(next());
    }
    end.send(()).unwrap();
    of_many.sort_unstable();
    assert_eq!(of_many, (1..=20).collect::<Vec<_>>());
    workers.stop();
}

/// A call with so many uses, which sign these numbers.
fn several(numbers: std::ops::Range<u8>) -> Call {
    let item = |number: u8| Item {
        behalf: None,
        operation: sign(&[number]),
        remaining_us: LONG.as_micros() as u64,
    };
    Call::Execute(numbers.map(item).collect())
}

#[test]
fn uses_of_one_frame_have_one_answer_in_their_order() {
    let workers = Workers::of([(); 2].map(|()| Arc::new(Echo) as Arc<dyn Token>));
    let mut connection = workers.connect(1);
    for most in [1, 2, 16, 16] {
        let answer = connection
            .exchange(&several(0..most), Some(soon()))
            .unwrap();
        let Answer::Results(results) = decode::<Reply>(answer).unwrap().answer else {
            panic!("no results");
        };
        let signed: Vec<_> = results
            .into_iter()
            .map(|result| result.unwrap().into_bytes().unwrap().to_vec())
            .collect();
        assert_eq!(signed, (0..most).map(|n| vec![n]).collect::<Vec<_>>());
    }
    let too_many = connection.exchange(&several(0..17), Some(soon()));
    assert!(too_many.is_err(), "the connection has ended");
    workers.stop();
}

#[test]
fn a_refused_use_of_a_frame_harms_none_of_the_others() {
    let workers = Workers::of([Arc::new(Echo) as Arc<dyn Token>]);
    let mut connection = workers.connect(1);
    let item = |operation| Item {
        behalf: None,
        operation,
        remaining_us: LONG.as_micros() as u64,
    };
    let random = || item(Operation::Random { len: 8 });
    for (items, expected) in [
        (
            vec![item(sign(b"a")), random(), item(sign(b"b"))],
            "ok refused ok",
        ),
        (vec![random(), random()], "refused refused"),
        (vec![item(sign(b"c"))], "ok"),
    ] {
        let answer = connection.exchange(&Call::Execute(items), Some(soon()));
        let Answer::Results(results) = decode::<Reply>(answer.unwrap()).unwrap().answer else {
            panic!("no results");
        };
        let said: Vec<_> = results
            .into_iter()
            .map(|result| match result {
                Ok(_) => "ok",
                Err(error) if error.kind() == Kind::Forbidden => "refused",
                Err(error) => panic!("{error}"),
            })
            .collect();
        assert_eq!(said.join(" "), expected);
    }
    workers.stop();
}

#[test]
fn a_frame_with_many_uses_has_a_users_turn_for_each() {
    let (workers, begun, end) = one_by_one();
    let mut many = [1, 2].map(|number| workers.connect_over(number, pair_of(20_001)));
    let mut one = workers.connect_over(99, pair_of(20_002));
    for (connection, numbers) in many.iter_mut().zip([0..16, 16..32]) {
        connection.write(&several(numbers), Some(soon())).unwrap();
    }
    let next = || begun.recv_timeout(LONG).unwrap();
    let mut of_many = vec![next()];
    for _ in 0..8 {
        one.write(&several(99..100), Some(soon())).unwrap();
        end.send(()).unwrap();
        assert_eq!(next(), 99, "after {of_many:?}");
        end.send(()).unwrap();
        one.read(frame::MAX_FRAME, Some(soon())).unwrap();
        of_many.push(next());
    }
    while of_many.len() < 32 {
        end.send(()).unwrap();
        of_many.push(next());
    }
    end.send(()).unwrap();
    for connection in &mut many {
        connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    }
    of_many.sort_unstable();
    assert_eq!(of_many, (0..32).collect::<Vec<_>>());
    workers.stop();
}

#[test]
fn a_frame_that_has_begun_comes_before_others_of_its_user() {
    let (workers, begun, end) = one_by_one();
    let mut many = workers.connect_over(1, pair_of(20_001));
    let mut rivals = [2, 3].map(|number| workers.connect_over(number, pair_of(20_001)));
    let _another_user = workers.connect_over(99, pair_of(20_002));
    many.write(&several(0..8), Some(soon())).unwrap();
    let next = || begun.recv_timeout(LONG).unwrap();
    assert_eq!(next(), 0);
    for (rival, number) in rivals.iter_mut().zip(100..) {
        rival
            .write(&several(number..number + 1), Some(soon()))
            .unwrap();
    }
    for number in (1..8).chain([100, 101]) {
        end.send(()).unwrap();
        assert_eq!(next(), number);
    }
    end.send(()).unwrap();
    many.read(frame::MAX_FRAME, Some(soon())).unwrap();
    workers.stop();
}

#[test]
fn a_frame_whose_program_has_gone_or_waited_too_long_is_not_done() {
    let (workers, begun, end) = one_by_one();
    let mut gone = workers.connect_over(1, pair_of(20_001));
    let mut other = workers.connect_over(99, pair_of(20_002));
    let next = || begun.recv_timeout(LONG).unwrap();
    gone.write(&several(0..8), Some(soon())).unwrap();
    assert_eq!(next(), 0);
    drop(gone);
    end.send(()).unwrap();
    let Call::Execute(mut items) = several(20..23) else {
        unreachable!("several uses");
    };
    items[1].remaining_us = 0;
    other.write(&Call::Execute(items), Some(soon())).unwrap();
    // The next of the frame that was left may have begun before the end was seen.
    let mut first = next();
    if first == 1 {
        end.send(()).unwrap();
        first = next();
    }
    assert_eq!(first, 20);
    end.send(()).unwrap();
    assert_eq!(next(), 22, "the second came too late");
    end.send(()).unwrap();
    let answer = other.read(frame::MAX_FRAME, Some(soon())).unwrap();
    let Answer::Results(results) = decode::<Reply>(answer).unwrap().answer else {
        panic!("no results");
    };
    let failed: Vec<_> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false]);
    workers.stop();
}

/// Takes three milliseconds for a use.
struct Slow;

impl Token for Slow {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Echo.objects()
    }

    fn submit(&self, batch: Batch) {
        Echo.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        thread::sleep(Duration::from_millis(3));
        Echo.execute(operation, deadline)
    }
}

#[test]
fn a_connection_ends_after_the_frame_with_the_eighth_slow_use() {
    let workers = Workers::of([Arc::new(Slow) as Arc<dyn Token>]);
    for uses in [16, 8] {
        let mut connection = workers.connect(u64::from(uses));
        let answer = connection.exchange(&several(0..uses), Some(soon()));
        let Answer::Results(results) = decode::<Reply>(answer.unwrap()).unwrap().answer else {
            panic!("no results");
        };
        assert_eq!(results.len(), usize::from(uses));
        assert!(connection.read(frame::MAX_FRAME, Some(soon())).is_err());
    }
    workers.stop();
}

/// Says which operations it is to prepare others like.
struct Preparing(mpsc::Sender<Vec<u8>>);

impl Token for Preparing {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::default()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        Echo.objects()
    }

    fn submit(&self, batch: Batch) {
        Echo.submit(batch);
    }

    fn make_ready(&self, like: &Operation) -> Option<Instant> {
        let (_, _, _, data) = like.key_use()?;
        self.0.send(data.to_vec()).unwrap();
        None
    }
}

/// The gateway opens several, and with few clients uses one.
#[test]
fn the_next_use_of_a_connection_that_alone_asks_is_prepared() {
    let (sender, prepared) = mpsc::channel();
    let workers = Workers::of([Arc::new(Preparing(sender)) as Arc<dyn Token>]);
    let mut connections = [1, 2].map(|number| workers.connect(number));
    for (connection, data) in [(0, b"1"), (0, b"2"), (1, b"3"), (0, b"4"), (0, b"5")] {
        ask(&mut connections[connection], data);
    }
    workers.stop();
    let prepared: Vec<_> = prepared.try_iter().collect();
    assert_eq!(prepared, [b"2", b"5"]);
}
