//! Workers that serve direct connections.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use hsmux_token::{ObjectId, Outcome, Token};
use hsmux_wire::{Connection, Direct, ProgramConnection, VERSION};

use super::{Doing, Echo, Unwatched};

/// Threads that each serve a token on the same connections, as workers do.
pub struct Workers {
    pub all: Vec<(Arc<Direct>, thread::JoinHandle<()>)>,
    pub open: Arc<AtomicUsize>,
}

impl Workers {
    pub fn of(tokens: impl IntoIterator<Item = Arc<dyn Token>>) -> Self {
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
    pub fn connect(&self, number: u64) -> Connection {
        self.connect_over(number, UnixStream::pair().unwrap())
    }

    /// The same over these two ends.
    pub fn connect_over(&self, number: u64, ends: (UnixStream, UnixStream)) -> Connection {
        let (near, connection) = self.connect_first(number, ends);
        for (direct, _) in &self.all {
            let connection = Arc::clone(&connection);
            direct.admit(number, connection, true, false).unwrap();
            assert!(direct.find(number).is_some());
        }
        near
    }

    /// A program's end of a connection that only the first of them hears, and the worker's.
    pub fn connect_first(
        &self,
        number: u64,
        (near, far): (UnixStream, UnixStream),
    ) -> (Connection, Arc<ProgramConnection>) {
        let key = ObjectId::of_certificate(b"a key");
        let connection = ProgramConnection::new(far, VERSION, key, Arc::clone(&self.open)).unwrap();
        let connection = Arc::new(connection);
        let (first, _) = &self.all[0];
        first
            .admit(number, Arc::clone(&connection), false, true)
            .unwrap();
        (Connection::new(near), connection)
    }

    pub fn stop(self) {
        for (direct, thread) in self.all {
            direct.stop();
            thread.join().unwrap();
        }
        assert_eq!(self.open.load(Ordering::SeqCst), 0);
    }
}

/// A worker that begins the next use when it is told to end one, and what it begins.
pub fn one_by_one() -> (Workers, mpsc::Receiver<u8>, mpsc::Sender<()>) {
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let ends = Mutex::new(ends);
    let token = Doing::arc(move |operation, deadline| {
        let outcome = Echo.execute(operation, deadline)?;
        if let Outcome::Bytes(data) = &outcome {
            begins.send(data[0]).unwrap();
            ends.lock().unwrap().recv().unwrap();
        }
        Ok(outcome)
    });
    let workers = Workers::of([token]);
    (workers, begun, end)
}

/// Two ends of a connection, which are another user's to the kernel: credentials are a thread's own.
pub fn pair_of(uid: u32) -> (UnixStream, UnixStream) {
    let as_user = || {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        UnixStream::pair().unwrap()
    };
    thread::scope(|scope| scope.spawn(as_user).join().unwrap())
}
