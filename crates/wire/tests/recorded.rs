//! Frames of version 1 as they stand on the wire, written down here: today's code must not change what they say.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::*;
use hsmux_wire::Reactor;

/// What a program with a module of version 1 sends, and what it is answered: lengths, then CBOR (RFC 8949).
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
