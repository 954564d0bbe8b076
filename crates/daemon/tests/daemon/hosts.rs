//! Another host, as its `[[peer]]` says.

use std::iter::repeat_with;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hsmux_token::{Kind, Operation};
use hsmux_wire::{Answer, Call, Connection, Hello, Item, Reply, SPOKEN, decode};

use crate::rig::Rig;

const NODE: &str = "login = \"peer\"\n\
    [node]\nlisten = [\"127.0.0.1:0\"]\n\
    certificate = \"node.pem\"\nkey = \"node.key\"\nca = \"ca.pem\"\n\
    [[peer]]\nname = \"web1\"\n";

/// More in one frame would go round what bounds its calls.
#[test]
fn another_host_sends_one_operation_in_a_frame() {
    let rig = Rig::start(NODE);
    let (near, far) = UnixStream::pair().unwrap();
    let running = rig.daemon.as_ref().unwrap().running();
    running.peers().serve(running, "web1", far).unwrap();
    let mut host = Connection::new(near);
    let soon = Some(Instant::now() + Duration::from_secs(120));
    let hello = Hello {
        oldest: *SPOKEN.start(),
        newest: *SPOKEN.end(),
        client: [7; 16],
        program: "link".to_owned(),
    };
    host.exchange(&hello, soon).unwrap();
    let mut ask = |operations| {
        let item = || Item {
            behalf: None,
            operation: Operation::Random { len: 8 },
            remaining_us: 60_000_000,
        };
        let call = Call::Execute(repeat_with(item).take(operations).collect());
        let reply: Reply = decode(host.exchange(&call, soon).unwrap()).unwrap();
        reply.answer
    };
    for _ in 0..3 {
        let answer = ask(1);
        let Answer::Results(results) = &answer else {
            panic!("{answer:?}");
        };
        assert!(results[0].is_ok(), "{results:?}");
        let answer = ask(2);
        let Answer::Failed(error) = &answer else {
            panic!("{answer:?}");
        };
        assert_eq!(error.kind(), Kind::Invalid);
    }
}

/// A service that was taken over could bring connections without end.
#[test]
fn hosts_have_twice_the_connections_of_the_configuration_at_most() {
    let rig = Rig::start(&NODE.replace("[node]\n", "[node]\nconnections = 8\n"));
    let running = rig.daemon.as_ref().unwrap().running();
    let mut held = Vec::new();
    let mut bring = || {
        let (near, far) = UnixStream::pair().unwrap();
        held.push(near);
        running.peers().serve(running, "web1", far)
    };
    for _ in 0..16 {
        bring().unwrap();
    }
    let refused = bring().unwrap_err();
    assert_eq!(refused.kind(), Kind::Busy, "{refused}");
    held.clear();
    let soon = Instant::now() + Duration::from_secs(120);
    let serve = || {
        let (near, far) = UnixStream::pair().unwrap();
        running.peers().serve(running, "web1", far).map(|_| near)
    };
    while serve().is_err() {
        assert!(Instant::now() < soon, "places stay taken");
        std::thread::yield_now();
    }
}

/// A service that was taken over could write on the administrator's terminal.
#[test]
fn what_is_said_of_a_refused_host_has_no_control_characters() {
    let rig = Rig::start(NODE);
    let peers = rig.daemon.as_ref().unwrap().running().peers();
    peers.refuse("192.0.2.1:7", "a\u{1b}[2Jb\nc", "d");
    let told = &peers.refused()[0].problem;
    assert_eq!(told, "a [2Jb c");
}
