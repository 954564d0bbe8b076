//! Servers that are asked whether they are well, so that no client is the first to find out.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use hsmux_pool::config::Check;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Backend, Backends, CONNECT, reasons};
use crate::files::{Files, Held};

impl Backends {
    /// Has each asked from now on, as long as anybody else has them.
    pub fn keep_asking(self: &Arc<Self>, files: &Files) {
        let Some(check) = self.behind.check() else {
            return;
        };
        if self.asked.swap(true, Relaxed) {
            return;
        }
        for which in 0..self.all.len() {
            let asking = keep_asking(Arc::downgrade(self), which, check.clone(), files.clone());
            tokio::spawn(asking);
        }
    }
}

async fn keep_asking(backends: Weak<Backends>, which: usize, check: Check, files: Files) {
    let mut turns = interval(check.interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let Some(backends) = backends.upgrade() else {
            return;
        };
        // That there is none says nothing of the server.
        if let Some(file) = files.behind() {
            backends.all[which].check(&check, file).await;
        }
    }
}

impl Backend {
    async fn check(&self, check: &Check, file: Held) {
        let patience = check.interval.min(CONNECT);
        let asked = timeout(patience, self.ask(&check.path, file)).await;
        match asked.unwrap_or_else(|_| Err(format!("no answer within {patience:?}"))) {
            Ok(()) => self.health.passed(&self.url),
            Err(why) => {
                let why = format!("asked for {}: {why}", check.path);
                self.health.failed(&self.url, &why);
            }
        }
    }

    /// On a connection of its own: it may be the connections that fail.
    async fn ask(&self, path: &str, file: Held) -> Result<(), String> {
        let mut sender = self.open(file).await?;
        let request = Request::get(path)
            .header(HOST, &self.host)
            .header(USER_AGENT, "hsmux")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new());
        let request = request.map_err(|e| reasons(&e))?;
        let answer = sender.send_request(request).await;
        let status = answer.map_err(|e| reasons(&e))?.status();
        if status.is_success() || status.is_redirection() {
            return Ok(());
        }
        Err(format!("status {status}"))
    }
}
