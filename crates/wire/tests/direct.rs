//! Connections that were handed over, and who of several that hear them takes what comes.

mod common;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::workers::{Workers, one_by_one, pair_of};
use common::*;
use hsmux_token::{Batch, ObjectId, Operation, Outcome, Result, Snapshot, Token, TokenInfo};
use hsmux_wire::{
    Answer, Call, Connection, Item, ProgramConnection, Reply, VERSION, decode, frame,
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
    let goes_on = Arc::new(Barrier::new(4));
    let waits = Arc::clone(&goes_on);
    let token = Doing::arc(move |operation, deadline| {
        let outcome = Echo.execute(operation, deadline)?;
        if let Outcome::Bytes(data) = &outcome {
            begins.send(data.to_vec()).unwrap();
            waits.wait();
        }
        Ok(outcome)
    });
    let workers = Workers::of([(); 3].map(|()| Arc::clone(&token)));
    let mut connections = [1, 2, 3].map(|number| workers.connect(number));
    thread::scope(|scope| {
        // Nobody goes on before all three have begun.
        for (number, connection) in (1..).zip(&mut connections) {
            scope.spawn(move || assert_eq!(ask(connection, &[number]), [number]));
            assert_eq!(begun.recv_timeout(LONG).unwrap(), [number]);
        }
        goes_on.wait();
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
