//! Clients in this process, which send far more requests than programs that are started for each one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use boring::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use hsmux_suite::{PATIENCE, until};

/// Clients that request the page of `a.test` until they are stopped.
pub struct ClientLoad {
    state: Arc<LoadState>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    port: u16,
    stop: AtomicBool,
    done: AtomicU64,
    failed: Mutex<Vec<Failure>>,
}

/// A request without its answer.
#[derive(Clone, Debug)]
pub struct Failure {
    pub why: String,
    /// The client's port; `None`: it had no connection.
    pub port: Option<u16>,
    /// When the client began to connect.
    pub began: Instant,
}

/// A client's connection.
struct OpenConnection {
    stream: BufReader<SslStream<TcpStream>>,
    port: Option<u16>,
    began: Instant,
}

/// Outcome of a request: whether its answer was the connection's last.
type Outcome = Result<bool, Failure>;

impl ClientLoad {
    /// `once` clients connect for each request, `kept` clients keep their connection as long as they may.
    pub fn start(port: u16, once: usize, kept: usize) -> Self {
        let state = Arc::new(LoadState {
            port,
            ..LoadState::default()
        });
        let client = |keeps| {
            let state = Arc::clone(&state);
            thread::spawn(move || state.run(keeps))
        };
        let clients = (0..once + kept).map(|n| client(n >= once)).collect();
        Self { state, clients }
    }

    /// Waits until so many more requests have succeeded or failed.
    pub fn goes_on(&self, more: u64) {
        let goal = self.state.done.load(Relaxed) + more;
        until("the clients go on", PATIENCE, || {
            (self.state.done.load(Relaxed) >= goal).then_some(())
        });
    }

    /// Stops the clients, and panics if a request has failed.
    #[track_caller]
    pub fn none_failed(self) {
        let done = Arc::clone(&self.state);
        let failed = self.stop();
        let (count, done) = (failed.len(), done.done.load(Relaxed));
        assert_eq!(count, 0, "{count} of {done} failed: {failed:#?}");
    }

    /// Stops the clients, and returns the failures.
    pub fn stop(mut self) -> Vec<Failure> {
        self.end();
        let failed = self.state.failed.lock().expect("the failures");
        failed.clone()
    }

    fn end(&mut self) {
        self.state.stop.store(true, Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl LoadState {
    fn run(&self, keeps: bool) {
        let mut open = None;
        while !self.stop.load(Relaxed) {
            let asked = self.ask(&mut open, keeps);
            match asked {
                Ok(last) if last || !keeps => open = None,
                Ok(_) => {}
                Err(why) => {
                    open = None;
                    self.failed.lock().expect("the failures").push(why);
                }
            }
            self.done.fetch_add(1, Relaxed);
        }
    }

    fn ask(&self, open: &mut Option<OpenConnection>, keeps: bool) -> Outcome {
        let open = match open {
            Some(open) => open,
            None => open.insert(OpenConnection::connect(self.port)?),
        };
        let (port, began) = (open.port, open.began);
        ask_for_page(&mut open.stream, keeps).map_err(|why| Failure { why, port, began })
    }
}

/// Requests the page. Returns whether that was the connection's last answer.
fn ask_for_page(stream: &mut BufReader<SslStream<TcpStream>>, keeps: bool) -> Result<bool, String> {
    let connection = if keeps { "keep-alive" } else { "close" };
    let request =
        format!("GET /page.txt HTTP/1.1\r\nHost: a.test\r\nConnection: {connection}\r\n\r\n");
    let named = |e: std::io::Error| format!("{connection}: {e}");
    stream
        .get_mut()
        .write_all(request.as_bytes())
        .map_err(named)?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).map_err(named)? == 0 {
            return Err(format!("{connection}: the end after {head:?}"));
        }
    }
    let mut page = [0; 7];
    stream.read_exact(&mut page).map_err(named)?;
    if !head.starts_with("HTTP/1.1 200 ") || &page != b"a page\n" {
        return Err(format!("{connection}: {head}"));
    }
    Ok(head
        .to_ascii_lowercase()
        .contains("\r\nconnection: close\r\n"))
}

impl OpenConnection {
    fn connect(to: u16) -> Result<Self, Failure> {
        let began = Instant::now();
        let failed = |why, port| Failure { why, port, began };
        let stream = TcpStream::connect(("127.0.0.1", to))
            .map_err(|e| failed(format!("connect: {e}"), None))?;
        let port = stream.local_addr().ok().map(|address| address.port());
        let stream = handshake(stream).map_err(|e| failed(format!("handshake: {e}"), port))?;
        Ok(Self {
            stream,
            port,
            began,
        })
    }
}

fn handshake(stream: TcpStream) -> Result<BufReader<SslStream<TcpStream>>, String> {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut connector = SslConnector::builder(SslMethod::tls()).map_err(|e| e.to_string())?;
    connector.set_verify(SslVerifyMode::NONE);
    let config = connector.build().configure().map_err(|e| e.to_string())?;
    let shaken = config.verify_hostname(false).connect("a.test", stream);
    shaken.map(BufReader::new).map_err(|e| e.to_string())
}

impl Drop for ClientLoad {
    fn drop(&mut self) {
        self.end();
    }
}
