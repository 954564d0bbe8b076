//! Connections of local users, over all listeners of a process with few files.

mod common;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use common::*;
use hsmux_token::{Result, TokenInfo};
use hsmux_wire::{
    Answer, Answerer, Call, Connection, Conversation, Greeting, Hello, Listening, Peer, Reactor,
    Reply, Service, frame,
};
use rustix::process::{Resource, getrlimit, setrlimit};

/// A user has a quarter of these, and all users together half.
const FILES: u64 = 400;
const OF_USER: usize = FILES as usize / 4;

const FIRST: u32 = 20_011;
const SECOND: u32 = 20_012;
const THIRD: u32 = 20_013;

/// Answers nothing but C_GetTokenInfo: another call stays open.
struct Front;

impl Service for Front {
    fn boot(&self) -> u64 {
        1
    }

    fn open(&self, _: Peer, _: &Hello) -> Result<Arc<dyn Conversation>> {
        Ok(Arc::new(Self))
    }
}

impl Conversation for Front {
    fn call(&self, call: Call, answer: Answerer) {
        match call {
            Call::Info => answer.send(&Reply::new(1, Answer::Info(TokenInfo::default()))),
            // Its connection is busy for as long as this process lives.
            _ => std::mem::forget(answer),
        }
    }
}

/// Two sockets in folders of their own.
struct Sockets {
    reactor: Arc<Reactor>,
    paths: [PathBuf; 2],
    _listening: [Listening; 2],
    _folders: [tempfile::TempDir; 2],
}

fn sockets() -> Sockets {
    let mut files = getrlimit(Resource::Nofile);
    files.current = Some(FILES);
    setrlimit(Resource::Nofile, files).unwrap();
    let reactor = Reactor::start().unwrap();
    // The other ends are files of this process, too.
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let made: Vec<(PathBuf, UnixListener)> = folders
        .iter()
        .map(|folder| open_socket(folder.path()))
        .collect();
    let paths = [0, 1].map(|at: usize| made[at].0.clone());
    let mut listeners = made.into_iter().map(|(_, listener)| listener);
    let listen = |listener| reactor.listen(listener, Arc::new(Front)).unwrap();
    let listening = [(); 2].map(|()| listen(listeners.next().unwrap()));
    Sockets {
        reactor,
        paths,
        _listening: listening,
        _folders: folders,
    }
}

/// What a user is told that may not connect.
fn refusal(greeting: Greeting) -> String {
    match greeting {
        Greeting::Refused(error) => error.to_string(),
        Greeting::Welcome(_) => panic!("is let in"),
    }
}

/// Whether the server still answers there.
fn is_served(connection: &mut Connection) -> bool {
    let asked = connection.write(&Call::Info, Some(soon()));
    let read = asked.and_then(|()| connection.read(frame::MAX_FRAME, Some(soon())));
    read.is_ok()
}

/// One test: the limit of files is the process's.
#[test]
fn a_user_has_one_share_over_all_sockets_and_gives_up_what_another_needs() {
    let sockets = sockets();
    let [one, other] = &sockets.paths;
    // One share, whichever sockets it is used on.
    let mut first: Vec<_> = (0..OF_USER)
        .map(|at| connect_as([one, other][at % 2], FIRST))
        .collect();
    for path in [one, other] {
        let refused = refusal(greet_as(path, FIRST).1);
        assert!(refused.contains("of this user"), "{refused}");
    }
    let mut second: Vec<_> = (0..OF_USER).map(|_| connect_as(one, SECOND)).collect();
    // Of two that have as many, the second loses one. Its oldest has a call that nobody answers, the next one has none.
    second[0].write(&Call::Pace, Some(soon())).unwrap();
    // The server has read that before it answers what came later.
    assert!(is_served(second.last_mut().unwrap()));
    // All slots are taken, by two users who have their shares. A third user gets one all the same.
    let refused = refusal(greet_as(one, SECOND).1);
    assert!(refused.contains("of this user"), "{refused}");
    let mut third = connect_as(other, THIRD);
    assert!(is_served(&mut third));
    assert!(first.iter_mut().all(is_served));
    // The oldest idle one.
    assert!(!is_served(&mut second[1]));
    assert!(second[2..].iter_mut().all(is_served));
    let busy = second[0].read(frame::MAX_FRAME, Some(Instant::now()));
    assert!(
        matches!(busy, Err(lost) if lost.is_late()),
        "it still waits"
    );
    // What ends makes room, at once or soon.
    first.clear();
    let until = Instant::now() + PATIENCE;
    while matches!(greet_as(other, FIRST).1, Greeting::Refused(_)) {
        assert!(Instant::now() < until, "room is made");
    }
    sockets.reactor.stop();
}
