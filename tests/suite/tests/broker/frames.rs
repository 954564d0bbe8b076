//! HTTP/2 (RFC 9113), frame by frame, as a client sends it that does not do what clients do.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::connection::tcp;
use crate::rig::Broker;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `SETTINGS_INITIAL_WINDOW_SIZE` (section 6.5.2), 0.
pub const CLOSED: &[u8] = &[0, 4, 0, 0, 0, 0];

/// One DATA frame has no more (section 4.2).
const PART: usize = 16 << 10;

/// A connection whose client has said its settings.
pub fn connect(broker: &Broker, settings: &[u8]) -> TcpStream {
    let mut stream = tcp(&broker.url);
    let said = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &*frame(SETTINGS, 0, 0, settings),
    ];
    stream.write_all(&said.concat()).expect("a preface");
    stream
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    [
        &length.to_be_bytes()[1..],
        &[kind, flags],
        &stream.to_be_bytes(),
        payload,
    ]
    .concat()
}

pub fn get(stream: u32, path: &str) -> Vec<u8> {
    let head = [&[0x82, 0x86], &*text(4, path), &text(1, "broker")].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)
}

pub fn post(stream: u32, path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let head = [
        &[0x83, 0x86],
        &*text(4, path),
        &text(1, "broker"),
        &text(0, "x-vault-token"),
        &text(0, token)[1..],
    ];
    let mut request = frame(HEADERS, END_HEADERS, stream, &head.concat());
    for part in body.chunks(PART) {
        request.extend(frame(DATA, 0, stream, part));
    }
    request.extend(frame(DATA, END_STREAM, stream, &[]));
    request
}

/// A literal without an index, by its name's index, or 0 and a name as its value (RFC 7541, section 6.2.2).
fn text(name: u8, value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("a short text");
    assert!(length < 127);
    [&[name, length], value.as_bytes()].concat()
}

/// The next frame: its kind, its flags and its stream.
pub fn read(stream: &mut TcpStream) -> (u8, u8, u32) {
    let (kind, flags, of, _) = read_whole(stream);
    (kind, flags, of)
}

/// The same with its payload.
pub fn read_whole(stream: &mut TcpStream) -> (u8, u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let [a, b, c, kind, flags, of @ ..] = head;
    let length = u32::from_be_bytes([0, a, b, c]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).expect("a frame");
    (kind, flags, u32::from_be_bytes(of), payload)
}

/// Reads what is there, without waiting; whether the connection is still open.
pub fn drain(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let open = loop {
        match stream.read(&mut [0; 16384]) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
            _ => break false,
        }
    };
    stream.set_nonblocking(false).expect("a socket");
    open
}
