//! Users of one reactor, which listens each of them as often.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use common::*;
use hsmux_token::{Result, TokenInfo};
use hsmux_wire::{
    Answer, Answerer, Call, Connection, Conversation, Greeting, Hello, Peer, Reactor, Reply,
    SPOKEN, Service, decode, frame,
};
use rustix::process::{Resource, getrlimit, setrlimit};

/// Says whose call it listens, and answers when it is told to; the reactor waits for that.
struct OneByOne {
    listens: mpsc::Sender<u32>,
    answers: Mutex<mpsc::Receiver<()>>,
}

struct Heard {
    uid: u32,
    service: Arc<OneByOne>,
}

struct Front(Arc<OneByOne>);

impl Service for Front {
    fn boot(&self) -> u64 {
        1
    }

    fn open(&self, peer: Peer, _: &Hello) -> Result<Arc<dyn Conversation>> {
        Ok(Arc::new(Heard {
            uid: peer.uid,
            service: Arc::clone(&self.0),
        }))
    }
}

impl Conversation for Heard {
    fn call(&self, _: Call, answer: Answerer) {
        let _ = self.service.listens.send(self.uid);
        let _ = self.service.answers.lock().unwrap().recv();
        answer.send(&Reply::new(1, Answer::Info(TokenInfo::default())));
    }
}

/// A connection as another user.
fn connect(path: &Path, uid: u32) -> Connection {
    let (connection, greeting) = greet(path, uid);
    assert!(
        matches!(greeting, Greeting::Welcome(_)),
        "{uid}: {greeting:?}"
    );
    connection
}

/// The same with what it is answered; credentials are a thread's own.
fn greet(path: &Path, uid: u32) -> (Connection, Greeting) {
    let as_user = || {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        UnixStream::connect(path).unwrap()
    };
    let stream = thread::scope(|scope| scope.spawn(as_user).join().unwrap());
    let mut connection = Connection::new(stream);
    let hello = Hello {
        oldest: *SPOKEN.start(),
        newest: *SPOKEN.end(),
        client: [1; 16],
        program: "test".into(),
    };
    // Who is refused may have been told before it says anything.
    let _ = connection.write(&hello, Some(soon()));
    let greeting = connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    (connection, decode(greeting).unwrap())
}

/// A socket that every user may connect to.
fn socket(folder: &Path) -> (PathBuf, UnixListener) {
    let path = folder.join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    for path in [folder, &path] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    (path, listener)
}

const MANY: u32 = 20_001;
const ONE: u32 = 20_002;

#[test]
fn sixty_connections_of_one_user_are_heard_as_often_as_one_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = socket(folder.path());
    let (listens, heard) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let service = Arc::new(OneByOne {
        listens,
        answers: Mutex::new(answers),
    });
    let reactor = Reactor::start().unwrap();
    let _listening = reactor.listen(listener, Arc::new(Front(service))).unwrap();
    let mut many: Vec<_> = (0..60).map(|_| connect(&path, MANY)).collect();
    let mut one = connect(&path, ONE);
    let ask = |connection: &mut Connection| connection.write(&Call::Info, Some(soon())).unwrap();
    let read = |connection: &mut Connection| {
        connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    };
    many.iter_mut().for_each(ask);
    ask(&mut one);
    let mut of_one = 0;
    let mut order = Vec::new();
    while order.len() < 60 {
        let uid = heard.recv_timeout(PATIENCE).unwrap();
        order.push(uid);
        answer.send(()).unwrap();
        if uid == ONE {
            of_one += 1;
            read(&mut one);
            ask(&mut one);
        }
    }
    // Of the time, which is not the same for each call, both have had half.
    assert!(of_one >= 15, "{of_one} of {}: {order:?}", order.len());
    drop(answer);
    reactor.stop();
}

/// Half of a listener's connections, or of this process's files; what ends makes room.
#[test]
fn a_user_has_so_many_connections_and_leaves_another_its_own() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let files = files.current.unwrap_or(u64::MAX) / 2;
    let most = usize::try_from(files).unwrap().min(4096);
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = socket(folder.path());
    let service = Arc::new(OneByOne {
        listens: mpsc::channel().0,
        answers: Mutex::new(mpsc::channel().1),
    });
    let reactor = Reactor::start().unwrap();
    let _listening = reactor.listen(listener, Arc::new(Front(service))).unwrap();
    let mut held: Vec<_> = (0..most).map(|_| connect(&path, MANY)).collect();
    let (_refused, greeting) = greet(&path, MANY);
    let Greeting::Refused(error) = greeting else {
        panic!("one more of the same user: {greeting:?}");
    };
    assert!(error.to_string().contains("of this user"), "{error}");
    connect(&path, ONE);
    held.clear();
    let until = soon();
    while !matches!(greet(&path, MANY).1, Greeting::Welcome(_)) {
        assert!(Instant::now() < until, "room is made");
    }
    reactor.stop();
}
