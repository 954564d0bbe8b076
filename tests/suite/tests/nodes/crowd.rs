//! Strangers by the thousand, and a host that takes all that it gets: others are served.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, until};
use hsmux_wire::{Greeting, Hello, SPOKEN, decode, frame};

use crate::pair::{Load, Pair, listens};
use crate::tls::{Stream, connect};

/// Connections that say nothing or begin a handshake, and come back when they are closed.
struct Strangers {
    end: Arc<AtomicBool>,
    coming: Option<JoinHandle<usize>>,
}

/// How many there are.
const STRANGERS: usize = 1000;

/// Between two looks at who was sent away.
const BACK_AFTER: Duration = Duration::from_secs(1);

impl Strangers {
    fn come(address: &str) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (ended, address) = (Arc::clone(&end), address.to_owned());
        let coming = thread::spawn(move || {
            let mut sent_away = 0;
            let mut all: Vec<_> = (0..STRANGERS).map(|n| stranger(&address, n)).collect();
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(BACK_AFTER);
                for (number, stream) in all.iter_mut().enumerate() {
                    if is_closed(stream) {
                        sent_away += 1;
                        *stream = stranger(&address, number);
                    }
                }
            }
            sent_away
        });
        let coming = Some(coming);
        Self { end, coming }
    }

    /// They go; answers how often one was sent away.
    fn go(mut self) -> usize {
        self.end.store(true, Ordering::Relaxed);
        let coming = self.coming.take().expect("they came");
        coming.join().expect("no panic")
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(coming) = self.coming.take() {
            let _ = coming.join();
        }
    }
}

/// Every other one has said that its TLS begins.
fn stranger(address: &str, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the port");
    stream.set_nonblocking(true).expect("a socket");
    if number.is_multiple_of(2) {
        let _ = stream.write(&[0x16, 0x03, 0x01]);
    }
    stream
}

fn is_closed(mut stream: &TcpStream) -> bool {
    let read = stream.read(&mut [0; 64]);
    !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn strangers_by_the_thousand_keep_no_host_out() {
    let mut pair = Pair::prepare(1, 1);
    pair.more = "connections = 64".to_owned();
    pair.start_node();
    let strangers = Strangers::come(&listens(&pair.node));
    pair.wait_for_log_of_node("too many others came");
    pair.start_user();
    pair.user.wait_for_members(2);
    pair.user.hsmux("token park hsm1 --force").ok();
    let mut load = Load::start(&pair.user);
    load.goes_on();
    load.nothing_failed();
    assert!(strangers.go() > 0);
}

#[test]
fn a_stranger_that_does_no_handshake_is_cut_off() {
    let mut pair = Pair::prepare(0, 1);
    pair.start_node();
    let address = listens(&pair.node);
    let come = Instant::now();
    let (silent, mut slow) = (stranger(&address, 1), stranger(&address, 0));
    // A ClientHello of 16 KiB, which comes byte by byte.
    slow.write_all(&[0x40, 0, 1, 0, 0x3f, 0xfc]).unwrap();
    until("they are cut off", PATIENCE, || {
        let _ = slow.write(&[0]);
        (is_closed(&silent) && is_closed(&slow)).then_some(())
    });
    // Not for what they have said.
    assert!(come.elapsed() > Duration::from_secs(5));
}

#[test]
fn a_host_that_takes_all_it_gets_leaves_others_theirs() {
    let mut pair = Pair::prepare(0, 1);
    pair.more = "connections = 16".to_owned();
    pair.peers += "\n[[peer]]\nname = \"web3\"";
    pair.member += "\nsessions = 4";
    pair.user.hsmux("node enroll web3").ok();
    pair.start_node();
    let (address, files) = (listens(&pair.node), pair.user.path("web3"));
    let mut taken = Vec::new();
    let refused = until("it is refused", PATIENCE, || {
        let (stream, greeting) = greet(&address, &files);
        taken.push(stream);
        match greeting {
            Greeting::Welcome(_) => None,
            Greeting::Refused(error) => Some(error.to_string()),
        }
    });
    assert!(refused.contains("web3 has 8 connections"), "{refused}");
    assert_eq!(taken.len(), 9);
    pair.start_user();
    pair.user.wait_for_members(1);
    let mut load = Load::start(&pair.user);
    load.goes_on();
    load.nothing_failed();
    pair.node
        .hsmux("status")
        .ok()
        .says("web3 has 8 connections");
    // It may come again when it has left.
    drop(taken);
    until("it is served", PATIENCE, || {
        let (_, greeting) = greet(&address, &files);
        matches!(greeting, Greeting::Welcome(_)).then_some(())
    });
}

/// Connects as the host whose files are in this folder, and says hello.
fn greet(address: &str, files: &Path) -> (Stream, Greeting) {
    let mut stream = connect(address, files, &[]);
    let hello = Hello {
        oldest: *SPOKEN.start(),
        newest: *SPOKEN.end(),
        client: [0; 16],
        program: "test".into(),
    };
    let mut bytes = Vec::new();
    frame::encode(&hello, &mut bytes).expect("a frame");
    stream.write_all(&bytes).expect("said hello");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame).expect("an answer");
    (stream, decode(frame).expect("a greeting"))
}
