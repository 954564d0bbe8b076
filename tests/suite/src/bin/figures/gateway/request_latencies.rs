//! Requests on an existing connection while others wait for handshakes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use boring::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use hsmux_token::{Error, Kind, Result};

use super::{PAGE, PATH};

/// The interval between starts of requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Durations of requests from the time when each was due, in milliseconds, sorted.
pub struct RequestLatencies(Vec<f64>);

impl RequestLatencies {
    /// Opens the connection, and sends requests while `work` runs.
    pub fn during<T>(address: &str, work: impl FnOnce() -> Result<T>) -> Result<(T, Self)> {
        let mut stream = connect(address)?;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let (mut due, mut took) = (Instant::now(), Vec::new());
                while !done.load(Relaxed) {
                    // Independent of the previous request: a stall counts for each request that was due meanwhile.
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    ask(&mut stream)?;
                    took.push(due.elapsed().as_secs_f64() * 1e3);
                    due += PAUSE;
                }
                Ok::<_, Error>(took)
            });
            let worked = work();
            done.store(true, Relaxed);
            let mut took = asking.join().expect("a thread")?;
            took.sort_by(f64::total_cmp);
            Ok((worked?, Self(took)))
        })
    }

    /// Combines both.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.0.sort_by(f64::total_cmp);
        self
    }

    /// The quantile, in thousandths.
    pub fn permille(&self, share: usize) -> f64 {
        let at = (self.0.len() * share).div_ceil(1000);
        let value = self.0.get(at.saturating_sub(1));
        value.copied().unwrap_or(f64::NAN)
    }
}

fn connect(address: &str) -> Result<SslStream<TcpStream>> {
    let refused = |why: String| Error::pool(Kind::Environment, format!("{address}: {why}"));
    let stream = TcpStream::connect(address).map_err(|e| refused(e.to_string()))?;
    stream
        .set_nodelay(true)
        .map_err(|e| refused(e.to_string()))?;
    let mut connector =
        SslConnector::builder(SslMethod::tls()).map_err(|e| refused(e.to_string()))?;
    connector.set_verify(SslVerifyMode::NONE);
    let mut settings = connector
        .build()
        .configure()
        .map_err(|e| refused(e.to_string()))?;
    settings.set_verify_hostname(false);
    settings
        .connect("localhost", stream)
        .map_err(|e| refused(e.to_string()))
}

/// One request, until the last byte of its answer.
fn ask(stream: &mut SslStream<TcpStream>) -> Result<()> {
    let mut answer = Vec::new();
    let mut exchange = || {
        write!(stream, "GET /{PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut part = [0; 4096];
        while !answer.ends_with(PAGE.as_bytes()) {
            match stream.read(&mut part)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => answer.extend(&part[..read]),
            }
        }
        Ok::<_, std::io::Error>(())
    };
    exchange().map_err(|e| {
        let message = format!("the connection that was there already: {e}");
        Error::pool(Kind::Lost, message)
    })
}
