//! A token that is a pool, with direct connections to its workers.

mod common;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::*;
use hsmux_token::{
    Batch, Done, Error, Kind, Mechanism, ObjectId, Operation, Outcome, Request, Token, Verb, ck,
};
use hsmux_wire::{
    Answer, Call, Connection, Direct, ProgramConnection, Reactor, RemoteToken, Reply, VERSION,
    frame,
};

/// Signs with its name. The data `fail` and `refuse` get an error.
fn named(name: &'static str) -> Arc<dyn Token> {
    Doing::arc(move |operation, _| {
        let (_, _, _, data) = operation.key_use().expect("a use of a key");
        match &data[..] {
            b"fail" if name != POOL => Err(Error::token(Kind::Vendor(ck::CKR_DEVICE_ERROR), "")),
            b"refuse" => Err(Error::request(Kind::Invalid, name)),
            _ => Ok(Outcome::Bytes(name.as_bytes().to_vec().into())),
        }
    })
}

const POOL: &str = "the pool";
const WORKER: &str = "the worker";

fn pool() -> Arc<RemoteToken> {
    remote_of(&Reactor::start().unwrap(), 1, 1, &named(POOL))
}

fn key() -> ObjectId {
    ObjectId::of_certificate(b"a key")
}

/// A worker that serves direct connections.
struct Worker {
    direct: Arc<Direct>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start() -> Self {
        Self::of(named(WORKER))
    }

    fn of(token: Arc<dyn Token>) -> Self {
        let direct = Arc::new(Direct::new(Arc::default()).unwrap());
        let serving = Arc::clone(&direct);
        let thread = thread::spawn(move || serving.serve(&*token, &Unwatched).unwrap());
        Self { direct, thread }
    }

    /// The client's end of a direct connection.
    fn connection(&self, number: u64) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        let connection =
            ProgramConnection::new(far, VERSION, key(), Arc::new(AtomicUsize::new(0))).unwrap();
        let connection = Arc::new(connection);
        self.direct.admit(number, connection, false, true).unwrap();
        near
    }

    fn stop(self) {
        self.direct.stop();
        self.thread.join().unwrap();
    }
}

fn signed_by(token: &RemoteToken, operation: &Operation) -> String {
    match token.execute(operation, soon()).unwrap() {
        Outcome::Bytes(name) => String::from_utf8(name.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn uses_of_its_key_take_direct_connections_until_these_end() {
    let (pool, worker) = (pool(), Worker::start());
    assert_eq!(signed_by(&pool, &sign(b"data")), POOL);
    let connections = [1, 2].map(|number| worker.connection(number).into());
    pool.use_directly(key(), connections.into()).unwrap();
    assert!(pool.is_used_directly(&key()));
    for _ in 0..5 {
        assert_eq!(signed_by(&pool, &sign(b"data")), WORKER);
    }
    let long = sign(&vec![0; 40_000]);
    assert_eq!(signed_by(&pool, &long), POOL, "too long for a worker");
    let other = Operation::Use {
        verb: Verb::Sign,
        key: ObjectId::of_certificate(b"another key").into(),
        mechanism: Mechanism::plain(ck::CKM_ECDSA),
        data: b"data".to_vec().into(),
    };
    assert_eq!(signed_by(&pool, &other), POOL);

    worker.stop();
    assert_eq!(signed_by(&pool, &sign(b"data")), POOL);
    let until = soon();
    while pool.is_used_directly(&key()) {
        assert!(Instant::now() < until, "its connections have ended");
        thread::yield_now();
    }
}

#[test]
fn connections_of_keys_that_are_no_longer_used_end() {
    let (pool, worker) = (pool(), Worker::start());
    let connection = worker.connection(1).into();
    pool.use_directly(key(), vec![connection]).unwrap();
    pool.keep_direct(&[ObjectId::of_certificate(b"another key"), key()]);
    assert_eq!(signed_by(&pool, &sign(b"data")), WORKER);
    pool.keep_direct(&[ObjectId::of_certificate(b"another key")]);
    assert!(!pool.is_used_directly(&key()));
    assert_eq!(signed_by(&pool, &sign(b"data")), POOL);
    let until = soon();
    while worker.direct.open() > 0 {
        assert!(Instant::now() < until, "the worker sees the end");
        thread::yield_now();
    }
    worker.stop();
}

#[test]
fn the_pool_repeats_what_a_worker_fails_and_nothing_else() {
    let (pool, worker) = (pool(), Worker::start());
    let connection = worker.connection(1).into();
    pool.use_directly(key(), vec![connection]).unwrap();
    assert_eq!(signed_by(&pool, &sign(b"fail")), POOL);
    let refused = pool.execute(&sign(b"refuse"), soon()).unwrap_err();
    assert_eq!(refused.to_string(), WORKER);
    assert_eq!(signed_by(&pool, &sign(b"data")), WORKER);
    worker.stop();
}

#[test]
fn the_pool_repeats_a_use_whose_connection_ends() {
    let pool = pool();
    let (near, mut far) = UnixStream::pair().unwrap();
    let worker = thread::spawn(move || far.read(&mut [0; 1000]).unwrap());
    pool.use_directly(key(), vec![near.into()]).unwrap();
    assert_eq!(signed_by(&pool, &sign(b"data")), POOL);
    assert!(worker.join().unwrap() > 0, "the worker was asked first");
}

#[test]
fn the_pool_repeats_a_use_that_takes_a_second() {
    let pool = pool();
    let (near, _far) = UnixStream::pair().unwrap();
    pool.use_directly(key(), vec![near.into()]).unwrap();
    let begun = Instant::now();
    assert_eq!(signed_by(&pool, &sign(b"data")), POOL);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
    let late = pool.execute(&sign(b"data"), Instant::now() + Duration::from_millis(50));
    let late = late.unwrap_err();
    assert_eq!(late.kind(), Kind::Deadline, "its own deadline is no reason");
}

#[test]
fn a_worker_that_hangs_keeps_no_use_from_another_worker() {
    let (end, ends) = mpsc::channel::<()>();
    let (pool, worker) = (pool(), Worker::start());
    let ends = Mutex::new(ends);
    let hung = Worker::of(Doing::arc(move |_, _| {
        let _ = ends.lock().unwrap().recv();
        Ok(Outcome::Done)
    }));
    // The lane that was added first is used first.
    let connections = [hung.connection(1), worker.connection(2)].map(Into::into);
    pool.use_directly(key(), connections.into()).unwrap();
    let submit = |done| {
        let request = Request {
            operation: sign(b"data"),
            deadline: soon(),
            behalf: None,
            done,
        };
        pool.submit(Batch::from_iter([request]));
    };
    submit(Done::new(|_| ()));
    let begun = Instant::now();
    let (tell, told) = mpsc::channel();
    submit(Done::new(move |result| tell.send(result).unwrap()));
    let Ok(Outcome::Bytes(name)) = told.recv_timeout(LONG).unwrap() else {
        panic!("no signature");
    };
    assert_eq!(&name[..], WORKER.as_bytes());
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "before the pool"
    );
    drop(end);
    hung.stop();
    worker.stop();
}

/// A worker of an older daemon ends a connection with several uses in a frame.
#[test]
fn only_a_pool_that_knows_shared_frames_gets_them() {
    for (version, knows) in [(4, false), (VERSION, true)] {
        let reactor = Reactor::start().unwrap();
        let admin = UnixStream::pair().unwrap().0;
        let pool = start_in(&reactor, version, Vec::new(), admin, 1);
        let (near, far) = UnixStream::pair().unwrap();
        pool.use_directly(key(), vec![near.into()]).unwrap();
        let submit = || {
            let request = Request {
                operation: sign(b"data"),
                deadline: soon(),
                behalf: None,
                done: Done::new(|_| ()),
            };
            pool.submit(Batch::from_iter([request]));
        };
        let mut worker = Connection::called(far);
        (0..16).for_each(|_| submit());
        let mut shares = false;
        let until = soon();
        for frames in 0.. {
            let frame = worker.read(frame::MAX_FRAME, Some(soon())).unwrap();
            let Call::Execute(items) = frame::decode_call(frame).unwrap() else {
                panic!("no uses");
            };
            shares |= items.len() > 1;
            if shares || frames == 200 && !knows {
                break;
            }
            assert!(Instant::now() < until, "no frame is shared");
            let results = items.iter().map(|_| Ok(Outcome::Done)).collect();
            let reply = Reply::new(0, Answer::Results(results));
            for _ in &items {
                submit();
            }
            worker.write(&reply, Some(soon())).unwrap();
        }
        assert_eq!(shares, knows, "version {version}");
    }
}
