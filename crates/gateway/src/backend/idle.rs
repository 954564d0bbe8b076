//! Idle connections of HTTP/1.1.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::asked::Asked;

/// Requests on one connection.
pub type Sender = SendRequest<Asked>;

/// The idle connections of one server.
#[derive(Clone, Default)]
pub struct Idle(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// Each with the time since when it is idle; the newest last.
    waiting: Vec<(Sender, Instant)>,
    /// Whether the sweep runs.
    swept: bool,
}

/// How long a connection may be idle. Common servers wait longer: a request is lost if the server closes first.
pub const PATIENCE: Duration = Duration::from_secs(4);

impl Idle {
    /// The connection that was idle for the shortest time.
    pub fn take(&self) -> Option<Sender> {
        let mut kept = self.0.lock();
        loop {
            let waiting = kept.waiting.pop()?;
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
        let idle = self.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                idle.put(sender);
            }
        });
    }

    fn put(&self, sender: Sender) {
        let mut kept = self.0.lock();
        kept.waiting.push((sender, Instant::now()));
        if !std::mem::replace(&mut kept.swept, true) {
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Closes connections that were idle for too long, until none is left.
    async fn sweep(self) {
        loop {
            sleep(PATIENCE).await;
            let mut kept = self.0.lock();
            kept.waiting.retain(is_good);
            if kept.waiting.is_empty() {
                kept.swept = false;
                return;
            }
        }
    }
}

fn is_good((sender, since): &(Sender, Instant)) -> bool {
    since.elapsed() < PATIENCE && !sender.is_closed()
}
