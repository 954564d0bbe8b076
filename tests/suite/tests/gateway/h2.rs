//! A client of HTTP/2 (RFC 9113) whose windows are closed from the start.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// `SETTINGS_INITIAL_WINDOW_SIZE` (section 6.5.2), 0.
const CLOSED: [u8; 6] = [0, 4, 0, 0, 0, 0];
/// The connection itself, as a stream.
const ALL: u8 = 0;
const ACK: u8 = 1;
/// The end of a request, and of its head.
const WHOLE: u8 = 1 | 4;

/// `openssl s_client`, and the frames that go through it.
pub struct Client {
    openssl: Child,
    says: ChildStdin,
    hears: ChildStdout,
}

impl Client {
    pub fn connect(address: &str) -> Self {
        let mut openssl = Command::new("openssl")
            .args(["s_client", "-quiet", "-alpn", "h2", "-connect", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a client");
        let mut says = openssl.stdin.take().expect("its words");
        says.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .expect("a preface");
        let mut client = Self {
            hears: openssl.stdout.take().expect("its ears"),
            says,
            openssl,
        };
        client.frame(SETTINGS, 0, ALL, &CLOSED).expect("settings");
        client
    }

    /// A GET, its fields as RFC 7541 writes literals without an index; each has less than 127 bytes.
    pub fn ask(&mut self, host: &str, path: &str) {
        let mut head = vec![0x82, 0x87];
        for (name, value) in [(1, host), (4, path)] {
            head.extend([name, u8::try_from(value.len()).expect("a short text")]);
            head.extend(value.as_bytes());
        }
        self.frame(HEADERS, WHOLE, 1, &head).expect("a request");
    }

    /// Answers each ping until the connection ends.
    pub fn answer_pings(&mut self) {
        while let Ok((kind, flags, payload)) = self.next() {
            if kind == PING && flags & ACK == 0 && self.frame(PING, ACK, ALL, &payload).is_err() {
                break;
            }
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) -> std::io::Result<()> {
        let length = u8::try_from(payload.len()).expect("a short frame");
        let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
        self.says.write_all(&[&head, payload].concat())
    }

    fn next(&mut self) -> std::io::Result<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.hears.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.hears.read_exact(&mut payload)?;
        Ok((head[3], head[4], payload))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.openssl.kill();
        let _ = self.openssl.wait();
    }
}
