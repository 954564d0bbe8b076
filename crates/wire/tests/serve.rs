//! A client, a server and lanes in one process.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::*;
use hsmux_token::{Kind, Operation, Secret};
use hsmux_wire::{Call, Client, Listening, Reactor, VERSION, frame};

struct Rig {
    folder: tempfile::TempDir,
    reactor: Arc<Reactor>,
    daemon: Arc<Daemon>,
    listening: Option<Listening>,
}

impl Rig {
    fn new() -> Self {
        let reactor = Reactor::start().unwrap();
        let daemon = Daemon::new(remote(&reactor, 2));
        let mut rig = Self {
            folder: tempfile::tempdir().unwrap(),
            reactor,
            daemon,
            listening: None,
        };
        rig.listening = Some(listen(&rig.reactor, &rig.path(), &rig.daemon));
        rig
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    fn client(&self) -> Client {
        Client::connect(endpoint(&self.path()), "test").unwrap()
    }

    fn connections(&self) -> usize {
        self.listening.as_ref().unwrap().connections()
    }

    /// Ends the server with all its connections, as its death would.
    fn kill(self) -> tempfile::TempDir {
        self.reactor.stop();
        self.folder
    }

    /// A server of another start, at the place of one that was killed.
    fn restarted(folder: tempfile::TempDir) -> Self {
        let reactor = Reactor::start().unwrap();
        let mut daemon = Daemon::new(remote(&reactor, 2));
        Arc::get_mut(&mut daemon).unwrap().boot = 2;
        let listening = listen(&reactor, &folder.path().join("sock"), &daemon);
        Self {
            folder,
            reactor,
            daemon,
            listening: Some(listening),
        }
    }
}

fn check(client: &Client, data: &[u8]) {
    let answer = client.execute(&sign(data), soon()).unwrap();
    assert_eq!(answer.into_bytes().unwrap(), data);
}

fn told_epoch(client: &Client) -> u64 {
    client.call(Call::Info, soon()).unwrap().epoch
}

/// What is left on a socket until its end; a reset counts as the end.
fn rest(stream: &mut UnixStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => rest,
    }
}

#[test]
fn a_call_goes_all_the_way_and_back() {
    let rig = Rig::new();
    let client = rig.client();
    for len in [0, 1, 32, 70_000, 3_000_000] {
        check(&client, &vec![7; len]);
    }
    assert_eq!(told_epoch(&client), 3);
    assert_eq!(client.welcome().unwrap().version, VERSION);
    assert_eq!(rig.daemon.token.objects().unwrap().epoch, 7);
}

#[test]
fn many_threads_share_a_client_and_its_connections_stay() {
    let rig = Rig::new();
    let client = rig.client();
    std::thread::scope(|scope| {
        for thread in 0..16_u8 {
            let client = &client;
            scope.spawn(move || (0..200).for_each(|_| check(client, &[thread; 40])));
        }
    });
    let open = rig.connections();
    assert!((1..=16).contains(&open), "{open}");
    check(&client, b"more");
    assert_eq!(rig.connections(), open);
    drop(client);
    until("all are closed", || {
        rig.daemon.closed.load(Ordering::SeqCst) == open
    });
}

#[test]
fn without_a_server_a_call_fails_at_once_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let client = Client::new(endpoint(&path), "test").unwrap();
    let begun = Instant::now();
    let error = client.execute(&sign(b""), soon()).unwrap_err();
    assert!(begun.elapsed() < PATIENCE / 4);
    assert_eq!(error.kind(), Kind::NoReplica);
    assert!(error.to_string().contains("hsmux serve"), "{error}");
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
}

#[test]
fn a_client_outlives_its_server_and_is_logged_in_again() {
    let rig = Rig::new();
    let client = rig.client();
    let pin = || Secret::new(b"1234".to_vec());
    client.call(Call::Login(pin()), soon()).unwrap();
    check(&client, b"before");

    let folder = rig.kill();
    let error = client.execute(&sign(b"none"), soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::NoReplica, "{error}");

    let rig = Rig::restarted(folder);
    check(&client, b"after");
    assert_eq!(client.welcome().unwrap().boot, 2);
    assert_eq!(rig.daemon.logins.load(Ordering::SeqCst), 1);

    client.call(Call::Logout, soon()).unwrap_err();
    let wrong = Call::Login(Secret::new(b"0000".to_vec()));
    assert_eq!(
        client.call(wrong, soon()).unwrap_err().kind(),
        Kind::PinIncorrect
    );
}

#[test]
fn a_call_that_the_server_drops_is_lost_and_its_connection_is_not() {
    let rig = Rig::new();
    let client = rig.client();
    let error = client.call(Call::Objects, soon()).unwrap_err();
    assert_eq!(error.kind(), Kind::Lost);
    check(&client, b"the connection is as it was");
    assert_eq!(rig.connections(), 1);
}

#[test]
fn a_deadline_ends_the_wait_and_not_the_client() {
    let rig = Rig::new();
    let client = rig.client();
    let begun = Instant::now();
    let slow = Operation::Random { len: 15_000 };
    let error = client
        .execute(&slow, begun + Duration::from_millis(50))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Deadline);
    assert!(begun.elapsed() < Duration::from_secs(12));
    check(&client, b"on another connection");
}

#[test]
fn malformed_frames_hurt_nobody_else() {
    let rig = Rig::new();
    let client = rig.client();
    let (mut seed, mut refused) = (42, 0);
    for round in 0..300 {
        let mut bytes = greeting();
        if round % 2 == 0 {
            frame::encode(&Call::Info, &mut bytes).unwrap();
        }
        mutate(&mut seed, &mut bytes);
        let mut peer = UnixStream::connect(rig.path()).unwrap();
        // It may have hung up in the middle of it.
        let _ = peer.write_all(&bytes);
        if is_malformed(&bytes) {
            // One that says nothing is cut off without a word; this is told why.
            assert!(!rest(&mut peer).is_empty(), "{bytes:?}");
            refused += 1;
        } else {
            let _ = peer.shutdown(std::net::Shutdown::Write);
            rest(&mut peer);
        }
        if round % 10 == 0 {
            check(&client, b"still served");
        }
    }
    assert!(refused > 50, "{refused} of 300");
    until("the others are closed", || rig.connections() == 1);
    check(&client, b"still served");
}

/// The longest call that a client makes; with an answer as long, two of them fill a user's budget.
const LONG_CALL: usize = frame::MAX_FRAME - (64 << 10);

/// Past it a connection is not read, and not ended either: that would end a whole link of another host.
#[test]
fn unfinished_frames_of_one_user_have_a_limit() {
    let rig = Rig::new();
    let client = rig.client();
    check(&client, b"before");
    let open = rig.connections();
    let mut peers: Vec<_> = (0..3)
        .map(|_| UnixStream::connect(rig.path()).unwrap())
        .collect();
    for peer in &mut peers {
        peer.write_all(&greeting()).unwrap();
        let header = u32::try_from(LONG_CALL).unwrap().to_le_bytes();
        peer.write_all(&header).unwrap();
        // Each answer is a turn of the reactor: it has read the header before the next peer begins.
        (0..4).for_each(|_| check(&client, b"a turn"));
    }
    let unread = peers.last_mut().unwrap();
    unread.set_nonblocking(true).unwrap();
    let mut written = 0;
    for _ in 0..100 {
        while let Ok(more) = unread.write(&[0; 4096]) {
            written += more;
        }
        check(&client, b"a turn");
    }
    assert!(written < LONG_CALL / 2, "{written} bytes were taken");
    assert_eq!(rig.connections(), open + 3);
    // One that ends makes room: the frame is read, and it is no call.
    drop(peers.remove(0));
    let unread = peers.last_mut().unwrap();
    unread.set_nonblocking(false).unwrap();
    unread.write_all(&vec![0; LONG_CALL - written]).unwrap();
    let refused = rest(unread);
    let refused = String::from_utf8_lossy(&refused);
    assert!(refused.contains("a malformed frame"), "{refused}");
    check(&client, b"still served");
    drop(peers);
    until("the others are closed", || rig.connections() == open);
}

/// Answers that nobody reads count like calls; the others wait, and go on as each answer is read.
#[test]
fn unread_answers_of_one_user_have_a_limit() {
    let rig = Rig::new();
    let call = {
        let mut bytes = greeting();
        let item = hsmux_wire::Item {
            behalf: None,
            operation: sign(&vec![7; LONG_CALL]),
            remaining_us: 100_000_000,
        };
        frame::encode(&Call::Execute(vec![item]), &mut bytes).unwrap();
        Arc::new(bytes)
    };
    let mut peers: Vec<_> = (0..5)
        .map(|_| UnixStream::connect(rig.path()).unwrap())
        .collect();
    // The last ones are not taken before an answer is read.
    let writers: Vec<_> = peers
        .iter()
        .map(|peer| (peer.try_clone().unwrap(), Arc::clone(&call)))
        .map(|(mut peer, call)| std::thread::spawn(move || peer.write_all(&call).unwrap()))
        .collect();
    let client = rig.client();
    for _ in 0..20 {
        check(&client, b"short calls go on");
    }
    let finished = || writers.iter().filter(|writer| writer.is_finished()).count();
    until("the first are taken", || finished() > 0);
    for _ in 0..200 {
        check(&client, b"short calls go on");
    }
    assert!(finished() < peers.len(), "all are taken, and none is read");
    let mut read = 0;
    until("all are answered", || {
        for peer in &mut peers {
            let mut chunk = vec![0; 1 << 16];
            peer.set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            while let Ok(more @ 1..) = peer.read(&mut chunk) {
                read += more;
            }
        }
        read > 5 * LONG_CALL
    });
    for writer in writers {
        writer.join().unwrap();
    }
}

/// A frame has so long as a whole: one byte now and then does not make it longer.
#[test]
fn a_frame_that_trickles_in_is_cut_off() {
    let rig = Rig::new();
    let mut peer = UnixStream::connect(rig.path()).unwrap();
    peer.write_all(&greeting()).unwrap();
    let begun = Instant::now();
    peer.write_all(&4096_u32.to_le_bytes()).unwrap();
    peer.write_all(&[0x82, 4]).unwrap();
    until("it is cut off", || {
        std::thread::sleep(Duration::from_millis(20));
        peer.write_all(&[0]).is_err()
    });
    let took = begun.elapsed();
    assert!((25..100).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn a_second_call_before_the_answer_is_refused() {
    let rig = Rig::new();
    let mut peer = UnixStream::connect(rig.path()).unwrap();
    let mut bytes = greeting();
    for len in [500, 1] {
        let item = hsmux_wire::Item {
            behalf: None,
            operation: Operation::Random { len },
            remaining_us: 1_000_000,
        };
        frame::encode(&Call::Execute(vec![item]), &mut bytes).unwrap();
    }
    peer.write_all(&bytes).unwrap();
    let heard = rest(&mut peer);
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.contains("one call at a time"), "{heard}");
}

#[test]
fn a_peer_that_says_nothing_is_cut_off() {
    let rig = Rig::new();
    let begun = Instant::now();
    let mut peer = UnixStream::connect(rig.path()).unwrap();
    assert!(rest(&mut peer).is_empty());
    let after = begun.elapsed();
    assert!((4..60).contains(&after.as_secs()), "{after:?}");
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = hsmux_wire::Hello {
        oldest: 1,
        newest: 2,
        client: [9; 16],
        program: "a stranger".into(),
    };
    frame::encode(&hello, &mut bytes).unwrap();
    bytes
}

/// A service that was taken over could open connections without end.
#[test]
fn an_entrance_takes_no_more_connections_than_it_may() {
    let reactor = Reactor::start().unwrap();
    let daemon = Daemon::new(Arc::new(Echo));
    let entrance = reactor.entrance(Arc::new(Front(daemon)), 2);
    let take = || {
        let (near, far) = UnixStream::pair().unwrap();
        entrance.take(far).map(|_| near)
    };
    let held = [take().unwrap(), take().unwrap()];
    let refused = take().unwrap_err().to_string();
    assert!(refused.contains("2 connections are open"), "{refused}");
    drop(held);
    until("a closed connection makes room", || take().is_ok());
}

/// The service's end may be in another process as well.
#[test]
fn a_connection_of_an_entrance_can_be_ended() {
    let reactor = Reactor::start().unwrap();
    let daemon = Daemon::new(Arc::new(Echo));
    let entrance = reactor.entrance(Arc::new(Front(daemon)), 2);
    let (near, far) = UnixStream::pair().unwrap();
    let copy = near.try_clone().unwrap();
    let admitted = entrance.take(far).unwrap();
    assert!(admitted.is_open());
    drop(near);
    admitted.end();
    assert_eq!((&copy).read(&mut [0]).unwrap(), 0);
    assert!(!admitted.is_open());
}
