//! Clients in this process, which ask far more often than programs that are started for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use boring::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use hsmux_suite::{PATIENCE, until};

/// Clients of `a.test` that ask for the page until they are stopped.
pub struct Crowd {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    port: u16,
    stop: AtomicBool,
    done: AtomicU64,
    failed: Mutex<Vec<String>>,
}

/// An answer was read to its end, and whether it is the connection's last.
type Asked = Result<bool, String>;

impl Crowd {
    /// So many clients that connect for each request, and so many that ask on one connection as long as they may.
    pub fn start(port: u16, once: usize, kept: usize) -> Self {
        let shared = Arc::new(Shared {
            port,
            ..Shared::default()
        });
        let client = |keeps| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.run(keeps))
        };
        let clients = (0..once + kept).map(|n| client(n >= once)).collect();
        Self { shared, clients }
    }

    /// Waits until so many more requests have ended, well or not.
    pub fn goes_on(&self, more: u64) {
        let goal = self.shared.done.load(Relaxed) + more;
        until("the clients go on", PATIENCE, || {
            (self.shared.done.load(Relaxed) >= goal).then_some(())
        });
    }

    /// Ends them, and panics if more requests than that have failed.
    #[track_caller]
    pub fn at_most_failed(mut self, allowed: usize) {
        self.end();
        let done = self.shared.done.load(Relaxed);
        let failed = self.shared.failed.lock().expect("the failures");
        let count = failed.len();
        assert!(count <= allowed, "{count} of {done} failed: {failed:#?}");
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Shared {
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

    fn ask(&self, open: &mut Option<BufReader<SslStream<TcpStream>>>, keeps: bool) -> Asked {
        if open.is_none() {
            *open = Some(connect(self.port)?);
        }
        let stream = open.as_mut().ok_or("no connection")?;
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
}

fn connect(port: u16) -> Result<BufReader<SslStream<TcpStream>>, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("connect: {e}"))?;
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut connector = SslConnector::builder(SslMethod::tls()).map_err(|e| e.to_string())?;
    connector.set_verify(SslVerifyMode::NONE);
    let config = connector.build().configure().map_err(|e| e.to_string())?;
    let shaken = config.verify_hostname(false).connect("a.test", stream);
    shaken
        .map(BufReader::new)
        .map_err(|e| format!("handshake: {e}"))
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}
