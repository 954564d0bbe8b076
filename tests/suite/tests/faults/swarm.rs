//! Connections of one user, as many as there are to be, on one thread: the cheapest way to ask for much.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use hsmux_suite::{PATIENCE, Rig, until};
use hsmux_token::Secret;
use hsmux_wire::{Answer, Call, Connection, Greeting, Hello, Reply, SPOKEN, decode, frame};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Uid;
use rustix::time::Timespec;

use crate::raw::soon;

/// Whether it is to stop is looked at so often, in nanoseconds.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// One connection of a user, which waits for each answer.
pub struct User {
    connection: Connection,
}

impl User {
    /// Connects as this user; the caller's thread is root's again afterwards.
    pub fn connect(socket: &Path, uid: u32) -> Self {
        let stream = as_user(uid, || UnixStream::connect(socket).unwrap());
        let mut connection = Connection::new(stream);
        let hello = Hello {
            oldest: *SPOKEN.start(),
            newest: *SPOKEN.end(),
            client: [1; 16],
            program: "raw".into(),
        };
        let greeting = connection.exchange(&hello, Some(soon())).unwrap();
        assert!(matches!(decode(greeting), Ok(Greeting::Welcome(_))));
        Self { connection }
    }

    /// The same, logged in.
    pub fn log_in(rig: &Rig, uid: u32) -> Self {
        let mut user = Self::connect(&rig.path("hsmux.sock"), uid);
        let pin = Secret::new(rig.pin().into_bytes());
        assert!(matches!(user.ask(&Call::Login(pin)), Answer::Done));
        user
    }

    /// Calls, and waits for the answer.
    pub fn ask(&mut self, call: &Call) -> Answer {
        let answer = self.connection.exchange(call, Some(soon())).unwrap();
        decode::<Reply>(answer).unwrap().answer
    }
}

/// What a thread does as another user: credentials are a thread's own, and the kernel tells those of the thread that
/// connects (unix(7), SO_PEERCRED).
pub fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    let as_uid = move || {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(as_uid).join().unwrap())
}

/// Connections that ask for the same thing again and again, until [`Self::end`].
pub struct Swarm {
    begun: Instant,
    answers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What a swarm asks for.
#[derive(Clone)]
pub struct Plan {
    pub socket: PathBuf,
    pub uid: u32,
    pub connections: usize,
    /// Asked for once, on the first connection.
    pub first: Call,
    pub call: Call,
}

impl Swarm {
    pub fn start(plan: Plan) -> Self {
        let (answers, stop) = (Arc::default(), Arc::default());
        let (counted, stopped) = (Arc::clone(&answers), Arc::clone(&stop));
        Self {
            begun: Instant::now(),
            answers,
            stop,
            thread: thread::spawn(move || run(&plan, &counted, &stopped)),
        }
    }

    /// Until there has been an answer.
    pub fn wait_until_it_works(&self) {
        until("the swarm is answered", PATIENCE, || {
            (self.answers.load(Ordering::Relaxed) > 0).then_some(())
        });
    }

    /// Ends it; answers how many answers it had in a second.
    pub fn end(self) -> f64 {
        let answers = self.answers.load(Ordering::Relaxed) as f64;
        let rate = answers / self.begun.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        rate
    }
}

struct One {
    stream: UnixStream,
    /// What is still to be written of the call.
    written: usize,
    /// What has come of the answer: its length, then so many bytes.
    header: Vec<u8>,
    missing: usize,
}

fn run(plan: &Plan, answers: &AtomicU64, stop: &AtomicBool) {
    let mut call = Vec::new();
    frame::encode(&plan.call, &mut call).unwrap();
    let mut first = User::connect(&plan.socket, plan.uid);
    first.ask(&plan.first);
    let mut all: Vec<_> = (0..plan.connections).map(|_| One::open(plan)).collect();
    let mut chunk = vec![0; 256 << 10];
    while !stop.load(Ordering::Relaxed) {
        for one in &mut all {
            one.step(&call, &mut chunk, answers).unwrap();
        }
        let flags = |one: &One| {
            if one.written < call.len() {
                PollFlags::OUT
            } else {
                PollFlags::IN
            }
        };
        let mut ready: Vec<_> = all
            .iter()
            .map(|one| PollFd::new(&one.stream, flags(one)))
            .collect();
        poll(&mut ready, Some(&LOOK_EVERY)).unwrap();
    }
}

impl One {
    fn open(plan: &Plan) -> Self {
        let user = User::connect(&plan.socket, plan.uid);
        let stream = user.connection.stream().try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            written: 0,
            header: Vec::new(),
            missing: 0,
        }
    }

    /// Writes and reads what is possible.
    fn step(&mut self, call: &[u8], chunk: &mut [u8], answers: &AtomicU64) -> io::Result<()> {
        while self.written < call.len() {
            match self.stream.write(&call[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let mut read = match self.stream.read(chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if self.missing == 0 {
            let header = read.len().min(4 - self.header.len());
            self.header.extend_from_slice(&read[..header]);
            read = &read[header..];
            let Ok(len) = <[u8; 4]>::try_from(&self.header[..]) else {
                return Ok(());
            };
            self.missing = u32::from_le_bytes(len) as usize;
        }
        self.missing -= read.len();
        if self.missing == 0 {
            self.header.clear();
            self.written = 0;
            answers.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
