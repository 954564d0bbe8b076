//! Peers that break the rules, and users who may not come in.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, hex, until};
use serde_json::json;

/// What may arrive instead of a frame: a 32-bit little-endian length and CBOR.
pub const MALFORMED: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: hsmux\r\n\r\n",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f then some bytes, but never so many",
    b"\x00\x00\x00\x00",
    b"\x01\x00\x00\x00\xff",
    b"\x04\x00\x00\x00\x9f\x9f\x9f\x9f",
    b"\x08\x00\x00\x00\x9b\xff\xff\xff\xff\xff\xff\xff",
    b"\x05\x00\x00\x00\x85\x01\x02\x40\x60",
    // Execute with 2^64 - 1 operations.
    b"\x0c\x00\x00\x00\x82\x00\x81\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
];

/// The beginnings of frames, whose rest may yet come.
pub const HALF: &[&[u8]] = &[b"", b"\x05", b"\x05\x00\x00\x00\x84\x01"];

/// A frame of arrays within arrays, 64 KiB deep.
pub fn deep() -> Vec<u8> {
    [vec![0, 0, 1, 0], vec![0x81; 1 << 16]].concat()
}

#[test]
fn malformed_frames_end_their_connection_only() {
    let mut rig = Rig::new(Setup::Daemon);
    let mut program = Caller::open(&rig);
    let deep = deep();
    let malformed = MALFORMED.iter().copied().chain([deep.as_slice()]);
    for socket in ["hsmux.sock", "hsmux-admin.sock"] {
        for bytes in malformed.clone() {
            is_refused(&rig, socket, bytes);
            is_refused(&rig, socket, &[&greeting(), bytes].concat());
        }
        for bytes in HALF {
            ends_with_its_peer(&rig, socket, bytes);
            ends_with_its_peer(&rig, socket, &[&greeting(), *bytes].concat());
        }
        program.ok("sign", json!({}));
    }
    assert!(rig.daemon.as_mut().unwrap().running());
}

/// The daemon ends a connection that says this, and says why: one without a greeting would end by itself.
fn is_refused(rig: &Rig, socket: &str, bytes: &[u8]) {
    let said = until_the_end(connection_that_says(rig, socket, bytes), bytes);
    let said = String::from_utf8_lossy(&said);
    let why = ["a malformed frame", "are the most"];
    assert!(
        why.iter().any(|why| said.contains(why)),
        "{bytes:?}: {said}"
    );
}

fn ends_with_its_peer(rig: &Rig, socket: &str, bytes: &[u8]) {
    let stream = connection_that_says(rig, socket, bytes);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    until_the_end(stream, bytes);
}

fn connection_that_says(rig: &Rig, socket: &str, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(rig.path(socket)).unwrap();
    // The daemon may have hung up already.
    let _ = stream.write_all(bytes);
    stream
}

/// What the daemon answers until it ends the connection; a reset is such an end.
pub fn until_the_end(mut stream: UnixStream, bytes: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let reset = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(reset, "{bytes:?}: the connection is still open: {error}");
    }
    answer
}

/// Connections that say nothing cost nobody else anything.
#[test]
fn silent_connections_do_not_block() {
    let rig = Rig::new(Setup::Daemon);
    let silent: Vec<_> = (0..100)
        .map(|_| UnixStream::connect(rig.path("hsmux.sock")).unwrap())
        .collect();
    Caller::open(&rig).ok("sign", json!({}));
    drop(silent);
}

/// What the user `nobody` is told at the first listener; nothing where it cannot connect.
fn as_nobody(rig: &Rig, socket: &str) -> String {
    say_as_nobody(rig, socket, &greeting())
}

fn say_as_nobody(rig: &Rig, socket: &str, greeting: &[u8]) -> String {
    const GREET: &str = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                         s.sendall(bytes.fromhex(sys.argv[2])); sys.stdout.buffer.write(s.recv(4096))";
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    rig.run("setpriv")
        .args("--reuid nobody --regid nogroup --clear-groups /usr/bin/python3 -c")
        .arg(GREET)
        .arg(rig.path(socket))
        .arg(hex(greeting))
        .finish()
        .out
}

/// A client's first frame: versions 1 to 2, a random name, a program.
fn greeting() -> Vec<u8> {
    greeting_of("test")
}

fn greeting_of(program: &str) -> Vec<u8> {
    let program = minicbor::to_vec(program).expect("text");
    let frame = [b"\x84\x01\x02\x50".as_slice(), &[7; 16], &program].concat();
    let length = u32::try_from(frame.len()).expect("a short frame");
    [length.to_le_bytes().as_slice(), &frame].concat()
}

#[test]
fn a_socket_is_for_those_it_is_for() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.start();
    assert_eq!(as_nobody(&rig, "hsmux.sock"), "", "mode 0600 let nobody in");
    rig.stop();
    for (user, welcome) in [("root", false), ("nobody", true)] {
        let open = rig.config.to_string().replace("0600", "0666");
        let allow = format!("[daemon]\nallow_users = [\"{user}\"]");
        fs::write(rig.path("hsmux.toml"), open.replace("[daemon]", &allow)).unwrap();
        rig.start_as_written();
        let told = as_nobody(&rig, "hsmux.sock");
        assert!(!told.is_empty(), "{user}: no answer");
        assert_eq!(told.contains("may not connect"), !welcome, "{user}: {told}");
        rig.stop();
        // It has a line once, of the first time.
        let mut lines = rig.trail();
        lines.retain(|line| line["act"] == "connect");
        assert_eq!(lines.len(), 1, "{user}: {lines:?}");
        assert_eq!(lines[0]["uid"], 65534);
        let why = lines[0]["outcome"].as_str();
        assert!(why.is_some_and(|why| why.contains("may not connect")));
    }
}

/// A user who may connect to the administration's socket, but not administer, leaves a line on the trail and in the log.
#[test]
fn refused_administration_is_on_the_audit_trail() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    rig.config.module.push_str("\n[admin]\nmode = \"0666\"");
    rig.start();
    let greeting = greeting_of(&"x".repeat(1000));
    let told = say_as_nobody(&rig, "hsmux-admin.sock", &greeting);
    assert!(told.contains("administration is for root"), "{told}");
    let log = rig.daemon.as_ref().unwrap().log();
    let line = log
        .lines()
        .find(|line| line.contains("administration refused"));
    let line = line.expect("a line");
    assert!(
        line.contains(&"x".repeat(128)) && !line.contains(&"x".repeat(129)),
        "{line}"
    );
    let trail = rig.path("state/audit.log");
    until("a line of the refusal", PATIENCE, || {
        let text = fs::read_to_string(&trail).ok()?;
        let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
        let mut refusals = lines.filter_map(Result::ok);
        refusals.find(|line| line["act"] == "administration" && line["uid"] == 65534)
    });
}
