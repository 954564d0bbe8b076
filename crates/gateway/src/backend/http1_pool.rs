//! Idle connections of HTTP/1.1.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::request_body::RequestBody;

/// Requests on one connection.
pub type Sender = SendRequest<RequestBody>;

/// The idle connections of one server.
#[derive(Clone, Default)]
pub struct Http1Pool(Arc<Mutex<IdleConnections>>);

#[derive(Default)]
struct IdleConnections {
    /// Each with the time since when it is idle; the newest last.
    waiting: Vec<(Sender, Instant)>,
    /// Whether the sweep runs.
    swept: bool,
}

/// How long a connection may be idle. Common servers wait longer: a request is lost if the server closes first.
pub const IDLE_LIMIT: Duration = Duration::from_secs(4);

impl Http1Pool {
    /// The connection that was idle for the shortest time.
    pub fn take(&self) -> Option<Sender> {
        let mut connections = self.0.lock();
        loop {
            let waiting = connections.waiting.pop()?;
            if is_good(&waiting) {
                return Some(waiting.0);
            }
        }
    }

    /// Keeps a connection, once the answer on it has been read to its end.
    pub fn keep(&self, mut sender: Sender) {
        if sender.is_ready() {
            return self.put(sender);
        }
        let pool = self.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                pool.put(sender);
            }
        });
    }

    fn put(&self, sender: Sender) {
        let mut connections = self.0.lock();
        connections.waiting.push((sender, Instant::now()));
        if !std::mem::replace(&mut connections.swept, true) {
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Closes connections that were idle for too long, until none is left.
    async fn sweep(self) {
        loop {
            sleep(IDLE_LIMIT).await;
            let mut connections = self.0.lock();
            connections.waiting.retain(is_good);
            if connections.waiting.is_empty() {
                connections.swept = false;
                return;
            }
        }
    }
}

fn is_good((sender, since): &(Sender, Instant)) -> bool {
    since.elapsed() < IDLE_LIMIT && !sender.is_closed()
}
