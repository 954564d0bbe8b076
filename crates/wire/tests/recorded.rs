//! Frames of version 1 as they stand on the wire, written down here: today's code must not change what they say.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::*;
use hsmux_token::{Class, Mechanism, ObjectId, Operation, Secret, Verb, ck};
use hsmux_wire::{Call, Client, Endpoint, Reactor};

/// Frames of a program with a module of version 1, and their answers: lengths, then CBOR (RFC 8949).
const RECORDED: &[(&str, &str)] = &[
    // Hello: versions 1 to 1, a random name, the program. Welcome: version 1, boot 1, no PIN, not read-only; a fifth
    // field is newer, and skipped by version 1.
    (
        "19000000 84 01 01 50 07070707070707070707070707070707 64 74657374",
        "09000000 82 00 81 85 01 01 f4 f4 f4",
    ),
    // Login with 1234. Done.
    ("08000000 82 04 81 44 31323334", "03000000 82 00 80"),
    // Execute: one item, of Use: Sign, a token's private key, CKM_ECDSA without a parameter, four bytes; within a
    // minute. Results: one, which is bytes. No epoch stands before them.
    (
        "41000000 82 00 81 81 82
            82 00 84 00
                82 00 81 82 03 5820 0909090909090909090909090909090909090909090909090909090909090909
                82 191041 82 00 80
                44 64617461
            1a03938700",
        "0e000000 82 02 81 81 82 00 82 01 81 44 64617461",
    ),
];

fn bytes(recorded: &str) -> Vec<u8> {
    let digits: Vec<_> = recorded.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| (16 * pair[0] + pair[1]) as u8;
    digits.chunks(2).map(byte).collect()
}

/// The Welcome of a daemon that knew no other version, and no fifth field.
const WELCOME_OF_ITS_TIME: &str = "08000000 82 00 81 84 01 07 f4 f4";

#[test]
fn a_program_of_version_1_is_answered_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let reactor = Reactor::start().unwrap();
    let daemon = Daemon::new(Arc::new(Echo));
    let _listening = listen(&reactor, &path, &daemon);
    let mut program = UnixStream::connect(&path).unwrap();
    program.set_read_timeout(Some(PATIENCE)).unwrap();
    for (asked, answered) in RECORDED {
        program.write_all(&bytes(asked)).unwrap();
        let mut answer = vec![0; bytes(answered).len()];
        program.read_exact(&mut answer).unwrap();
        assert_eq!(answer, bytes(answered), "{asked}");
    }
    assert_eq!(daemon.logins.load(Ordering::SeqCst), 1);
}

/// Today's client says what a program of version 1 said, and asks for nothing that is newer.
#[test]
fn a_daemon_of_version_1_is_asked_as_ever() {
    const SIGNATURES: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut program, _) = listener.accept().unwrap();
        program.set_read_timeout(Some(PATIENCE)).unwrap();
        let [_, login, sign] = RECORDED else {
            panic!("other frames are recorded")
        };
        let mut answers = vec![WELCOME_OF_ITS_TIME, login.1];
        answers.extend([sign.1; SIGNATURES]);
        let answer = |answered: &str| {
            let asked = frame(&mut program);
            program.write_all(&bytes(answered)).unwrap();
            asked
        };
        let asked: Vec<_> = answers.into_iter().map(answer).collect();
        // A connection that is to be handed over would be another one.
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "a second connection");
        asked
    });

    let client = Client::new(Endpoint::from(&*path), "test").unwrap();
    let soon = || Instant::now() + Duration::from_secs(60);
    client
        .call(Call::Login(Secret::new(b"1234".to_vec())), soon())
        .unwrap();
    let key = ObjectId {
        class: Class::PRIVATE_KEY,
        name: [9; 32],
    };
    let sign = Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(ck::CKM_ECDSA),
        data: b"data".to_vec().into(),
    };
    for _ in 0..SIGNATURES {
        let signature = client.execute(&sign, soon()).unwrap();
        assert_eq!(signature.into_bytes().unwrap(), b"data"[..]);
    }
    assert_eq!(client.welcome().unwrap().version, 1);

    let asked = daemon.join().unwrap();
    let [hello, login, sign] = [0, 1, 2].map(|at| bytes(RECORDED[at].0));
    // The newest version and the random name are the client's own.
    assert_eq!(asked[0][..6], hello[..6]);
    assert_eq!(u16::from(asked[0][6]), hsmux_wire::VERSION);
    assert_eq!(asked[0][24..], hello[24..]);
    assert_eq!(asked[1], login);
    // How many microseconds are left is different each time.
    let same = sign.len() - 4;
    for asked in &asked[2..] {
        assert_eq!(asked[..same], sign[..same]);
        assert_eq!(asked.len(), sign.len());
    }
}

/// A frame with its length.
fn frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame).unwrap();
    let length = u32::from_le_bytes(frame[..].try_into().unwrap());
    frame.resize(4 + length as usize, 0);
    stream.read_exact(&mut frame[4..]).unwrap();
    frame
}
