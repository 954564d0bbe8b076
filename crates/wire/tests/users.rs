//! Users of one reactor, which listens each of them as often.

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::*;
use hsmux_token::{Result, TokenInfo};
use hsmux_wire::{
    Answer, Answerer, Call, Connection, Conversation, Greeting, Hello, Peer, Reactor, Reply,
    Service, decode, frame,
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

const MANY: u32 = 20_001;
const ONE: u32 = 20_002;

#[test]
fn sixty_connections_of_one_user_are_heard_as_often_as_one_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = open_socket(folder.path());
    // Dropped after `answer`, for which its thread waits.
    let reactor = Reactor::start().unwrap();
    let (listens, heard) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let service = Arc::new(OneByOne {
        listens,
        answers: Mutex::new(answers),
    });
    let _listening = reactor.listen(listener, Arc::new(Front(service))).unwrap();
    let mut many: Vec<_> = (0..60).map(|_| connect_as(&path, MANY)).collect();
    let mut one = connect_as(&path, ONE);
    let ask = |connection: &mut Connection| connection.write(&Call::Info, Some(soon())).unwrap();
    let read = |connection: &mut Connection| {
        connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    };
    many.iter_mut().for_each(ask);
    ask(&mut one);
    let mut of_one = 0;
    let mut order = Vec::new();
    let (mut time_of_one, begun) = (Duration::ZERO, Instant::now());
    while order.len() < 60 {
        let uid = heard.recv_timeout(PATIENCE).unwrap();
        order.push(uid);
        let heard_at = Instant::now();
        answer.send(()).unwrap();
        if uid == ONE {
            of_one += 1;
            read(&mut one);
            time_of_one += heard_at.elapsed();
            ask(&mut one);
        }
    }
    // Both have had half of the time. One call that is interrupted costs as much as many others.
    let fair = of_one >= 15 || time_of_one >= begun.elapsed() / 4;
    assert!(
        fair,
        "{of_one} of {}, {time_of_one:?}: {order:?}",
        order.len()
    );
    drop(answer);
    reactor.stop();
}

/// Half of a listener's connections, or a quarter of this process's files; what ends makes room.
#[test]
fn a_user_has_so_many_connections_and_leaves_another_its_own() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let files = files.current.unwrap_or(u64::MAX) / 4;
    let most = usize::try_from(files).unwrap().min(4096);
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = open_socket(folder.path());
    let service = Arc::new(OneByOne {
        listens: mpsc::channel().0,
        answers: Mutex::new(mpsc::channel().1),
    });
    let reactor = Reactor::start().unwrap();
    let _listening = reactor.listen(listener, Arc::new(Front(service))).unwrap();
    let mut held: Vec<_> = (0..most).map(|_| connect_as(&path, MANY)).collect();
    let (_refused, greeting) = greet_as(&path, MANY);
    let Greeting::Refused(error) = greeting else {
        panic!("one more of the same user: {greeting:?}");
    };
    assert!(error.to_string().contains("of this user"), "{error}");
    connect_as(&path, ONE);
    held.clear();
    let until = soon();
    while !matches!(greet_as(&path, MANY).1, Greeting::Welcome(_)) {
        assert!(Instant::now() < until, "room is made");
    }
    reactor.stop();
}

/// Short frames whose end is missing count as well. The first that does not fit ends its own connection.
#[test]
fn unfinished_short_frames_of_one_user_have_a_limit() {
    const LEN: usize = 64 << 10;
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let fit = (64 << 20) / LEN;
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = open_socket(folder.path());
    let service = Arc::new(OneByOne {
        listens: mpsc::channel().0,
        answers: Mutex::new(mpsc::channel().1),
    });
    let reactor = Reactor::start().unwrap();
    let _listening = reactor.listen(listener, Arc::new(Front(service))).unwrap();
    let begin = || {
        let connection = connect_as(&path, MANY);
        let mut stream = connection.stream();
        stream.write_all(&(LEN as u32).to_le_bytes()).unwrap();
        connection
    };
    let mut held: Vec<_> = (0..fit).map(|_| begin()).collect();
    let mut refused = begin();
    let answer = refused.read(frame::MAX_FRAME, Some(soon())).unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(text.contains("leave no room"), "{text}");
    // Another user has its own.
    assert!(is_answered(&mut connect_as(&path, ONE)));
    let mut one_more = connect_as(&path, MANY);
    assert!(!is_answered(&mut one_more));
    // What ends makes room.
    drop(held.pop());
    let until = soon();
    while !is_answered(&mut one_more) {
        assert!(Instant::now() < until, "room is made");
    }
    reactor.stop();
}

/// Whether a short call is answered, rather than refused.
fn is_answered(connection: &mut Connection) -> bool {
    connection.write(&Call::Info, Some(soon())).unwrap();
    let answer = connection.read(frame::MAX_FRAME, Some(soon())).unwrap();
    let reply: Reply = decode(answer).unwrap();
    matches!(reply.answer, Answer::Info(_))
}
