//! A connection of its own: what curl does not show, which is when bytes come and when a connection ends.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use hsmux_suite::PATIENCE;

/// A connection that asks one thing after the other.
pub struct Connection {
    stream: Box<dyn Stream>,
    /// What was read beyond the last answer.
    rest: Vec<u8>,
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Its lines, in small letters.
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The seconds of Retry-After.
    pub fn retry_after(&self) -> Option<u64> {
        let (_, value) = self.head.split_once("retry-after: ")?;
        value.lines().next()?.trim().parse().ok()
    }
}

impl Connection {
    /// To `http://127.0.0.1:PORT`.
    pub fn tcp(url: &str) -> Self {
        Self::over(tcp(url))
    }

    /// To a unix socket.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Self::over(stream)
    }

    /// Over a stream that is open.
    pub fn over(stream: impl Read + Write + Send + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            rest: Vec::new(),
        }
    }

    /// Sends bytes; the other end may have gone already.
    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a request.
    pub fn send(&mut self, method: &str, path: &str, token: &str, body: &str) -> io::Result<()> {
        self.say(request(method, path, token, body).as_bytes())
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, method: &str, path: &str, token: &str, body: &str) -> io::Result<Answer> {
        self.send(method, path, token, body)?;
        self.answer()
    }

    /// Waits for an answer; an error when the connection ends before.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let end = loop {
            match find(&self.rest, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => self.more()?,
            }
        };
        let head = String::from_utf8_lossy(&self.rest[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let length = head
            .split_once("content-length: ")
            .map_or(0, |(_, length)| {
                let line = length.lines().next().unwrap_or_default();
                line.trim().parse().expect("a length")
            });
        while self.rest.len() < end + length {
            self.more()?;
        }
        let body = String::from_utf8_lossy(&self.rest[end..end + length]).into_owned();
        self.rest.drain(..end + length);
        Ok(Answer {
            status: status.expect("a status"),
            head,
            body,
        })
    }

    /// Waits until the other end closes it, whatever that sends before.
    pub fn wait_for_end(&mut self) {
        let error = loop {
            if let Err(error) = self.more() {
                break error;
            }
        };
        let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        assert!(ended.contains(&error.kind()), "it is open still: {error}");
    }

    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let read = loop {
            // A process that was stopped for a while and goes on.
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        match read {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.rest.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

/// A connection to `http://127.0.0.1:PORT`.
pub fn tcp(url: &str) -> TcpStream {
    let address = url.strip_prefix("http://").expect("an address");
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// A request as it travels.
pub fn request(method: &str, path: &str, token: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: broker\r\nX-Vault-Token: {token}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}
