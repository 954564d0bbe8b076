//! HTTP/2 (RFC 9113) frame by frame, for clients and servers.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;

/// `SETTINGS_INITIAL_WINDOW_SIZE` (section 6.5.2), 0.
const CLOSED: [u8; 6] = [0, 4, 0, 0, 0, 0];
/// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441, section 3), 1.
const CONNECT: [u8; 6] = [0, 8, 0, 0, 0, 1];
/// The connection itself, as a stream.
pub const ALL: u8 = 0;
const ACK: u8 = 1;
pub const END: u8 = 1;
/// END_HEADERS; `WHOLE` also ends the request.
const HEAD: u8 = 4;
pub const WHOLE: u8 = 1 | HEAD;
/// A head of `:status 200` (RFC 7541, appendix A).
pub const OK: u8 = 0x88;
/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// `openssl s_client`, which passes frames on.
pub struct Client {
    openssl: Child,
    says: ChildStdin,
    hears: ChildStdout,
}

impl Client {
    /// A client with closed windows.
    pub fn closed(address: &str) -> Self {
        Self::connect(address, &CLOSED)
    }

    /// A client with open windows.
    pub fn open(address: &str) -> Self {
        Self::connect(address, &[])
    }

    fn connect(address: &str, settings: &[u8]) -> Self {
        let mut openssl = Command::new("openssl")
            .args(["s_client", "-quiet", "-alpn", "h2", "-connect", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a client");
        let mut says = openssl.stdin.take().expect("its words");
        says.write_all(PREFACE).expect("a preface");
        let mut client = Self {
            hears: openssl.stdout.take().expect("its ears"),
            says,
            openssl,
        };
        client.frame(SETTINGS, 0, ALL, settings).expect("settings");
        client
    }

    /// Sends a GET request.
    pub fn ask(&mut self, host: &str, path: &str) {
        let head = [&[0x82, 0x87], &*field(1, host), &*field(4, path)].concat();
        self.frame(HEADERS, WHOLE, 1, &head).expect("a request");
    }

    /// Asks for a protocol on a stream (RFC 8441, section 4), after the server's settings have allowed it. Returns the
    /// first byte of the answer's head: 0x88 is `:status 200`.
    pub fn connect_protocol(&mut self, host: &str, path: &str, protocol: &str) -> u8 {
        let (_, _, settings) = self.next_of(SETTINGS);
        assert!(settings.chunks(6).any(|one| one == CONNECT), "{settings:?}");
        let mut head = [
            &*field(2, "CONNECT"),
            &[0x87],
            &*field(1, host),
            &*field(4, path),
        ]
        .concat();
        for (name, value) in [(":protocol", protocol), ("sec-websocket-version", "13")] {
            head.extend([&*field(0, name), &field(0, value)[1..]].concat());
        }
        self.frame(HEADERS, HEAD, 1, &head).expect("a request");
        self.next_of(HEADERS).2[0]
    }

    /// Sends data on the stream.
    pub fn say(&mut self, words: &[u8]) {
        self.frame(DATA, 0, 1, words).expect("a stream");
    }

    /// Reads data of the stream until it ends.
    pub fn hear(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        loop {
            let (_, flags, words) = self.next_of(DATA);
            heard.extend(words);
            if flags & END != 0 {
                return heard;
            }
        }
    }

    fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().expect("a frame");
            if frame.0 == kind {
                return frame;
            }
        }
    }

    /// Answers each ping until the connection ends.
    pub fn answer_pings(&mut self) {
        while let Ok((kind, flags, payload)) = self.next() {
            if kind == PING && flags & ACK == 0 && self.frame(PING, ACK, ALL, &payload).is_err() {
                break;
            }
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) -> io::Result<()> {
        write(&mut self.says, kind, flags, stream, payload)
    }

    fn next(&mut self) -> io::Result<Frame> {
        read(&mut self.hears)
    }
}

/// Type, flags and payload.
type Frame = (u8, u8, Vec<u8>);

pub fn write(
    to: &mut impl Write,
    kind: u8,
    flags: u8,
    stream: u8,
    payload: &[u8],
) -> io::Result<()> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
    to.write_all(&[&head, payload].concat())
}

pub fn read(from: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    from.read_exact(&mut payload)?;
    Ok((head[3], head[4], payload))
}

/// A literal field without indexing (RFC 7541, section 6.2.2). `name` is the index of its name. With 0, `value` is the
/// name, and the value has to follow. Less than 127 bytes.
pub fn field(name: u8, value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("a short text");
    [&[name, length], value.as_bytes()].concat()
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.openssl.kill();
        let _ = self.openssl.wait();
    }
}
