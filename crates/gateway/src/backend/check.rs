//! Health checks: they find a failed server before a client does.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use hsmux_config::Check;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::{CONNECTION, USER_AGENT};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::sender::{Sender, one_by_one, several};
use super::{Backend, Backends, CONNECT, reasons};
use crate::file_budget::{FileBudget, FilePermit};

impl Backends {
    /// Starts the checks, unless they run. They end when nobody else holds the backends.
    pub fn start_checks(self: &Arc<Self>, files: &FileBudget) {
        let Some(check) = self.configured.check() else {
            return;
        };
        if self.checks_run.swap(true, Relaxed) {
            return;
        }
        for which in 0..self.all.len() {
            let checks =
                check_repeatedly(Arc::downgrade(self), which, check.clone(), files.clone());
            tokio::spawn(checks);
        }
    }
}

async fn check_repeatedly(backends: Weak<Backends>, which: usize, check: Check, files: FileBudget) {
    let mut turns = interval(check.interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let Some(backends) = backends.upgrade() else {
            return;
        };
        // A lack of files says nothing of the server.
        if let Some(file) = files.for_backend() {
            backends.all[which].check(&check, file).await;
        }
    }
}

impl Backend {
    async fn check(&self, check: &Check, file: FilePermit) {
        let patience = check.interval.min(CONNECT);
        let asked = timeout(patience, self.probe(&check.path, file)).await;
        match asked.unwrap_or_else(|_| Err(format!("no answer within {patience:?}"))) {
            Ok(()) => self.health.passed(&self.url),
            Err(why) => {
                let why = format!("asked for {}: {why}", check.path);
                self.health.failed(&self.url, &why);
            }
        }
    }

    /// Checks on a connection of its own: it may be connecting that fails.
    async fn probe(&self, path: &str, file: FilePermit) -> Result<(), String> {
        let stream = self.open(file).await?;
        let request = Request::get(path).header(USER_AGENT, "hsmux");
        let (mut sender, request) = match self.http2 {
            None => {
                let sender = Sender::One(one_by_one(stream).await?);
                (sender, request.header(CONNECTION, "close"))
            }
            Some(_) => (Sender::Several(several(stream).await?.0), request),
        };
        let request = request.body(Empty::<Bytes>::new());
        let mut request = request.map_err(|e| reasons(&e))?;
        self.address(&mut request);
        let answer = sender.try_send(request).await;
        let status = answer.map_err(|e| reasons(e.error()))?.status();
        if status.is_success() || status.is_redirection() {
            return Ok(());
        }
        Err(format!("status {status}"))
    }
}
