//! The access log: a line for each request of a service, in a file or in the journal.
//!
//! Requests never wait for it. Their lines go to a bounded queue, and a thread writes them. A line that finds no room,
//! or cannot be written, is lost and counted.
//!
//! | file | one idea |
//! |---|---|
//! | `record` | a request, from its begin until its line is written |
//! | `recorded_body` | the body of an answer, whose end is the end of its request |
//! | `json_line`, `combined_line` | the two formats |
//! | `escape` | text of clients, bounded and escaped |
//! | `queue` | lines that wait, and the thread that takes them |
//! | `output` | the file or the journal |

mod combined_line;
mod escape;
mod json_line;
mod output;
mod queue;
mod record;
mod recorded_body;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;

use hsmux_config::{AccessLog as Settings, AccessLogFormat};
use hyper::Request;
use parking_lot::Mutex;

pub use json_line::JsonLine;
pub use record::{AccessDetails, AccessRecord, Transfer};
pub use recorded_body::RecordedBody;

use output::Output;
use queue::LineQueue;
use record::RequestHead;

/// The access log of a service.
pub struct AccessLog {
    /// [`OFF`], [`JSON`] or [`COMBINED`]: all that a request looks at.
    format: AtomicU8,
    settings: Mutex<Option<Settings>>,
    service: &'static str,
    queue: Arc<LineQueue>,
}

const OFF: u8 = 0;
const JSON: u8 = 1;
const COMBINED: u8 = 2;

impl AccessLog {
    /// The log of `[gateway]` or `[broker]`, which is off. `on_loss` is called with a number of lost lines.
    pub fn new(service: &'static str, on_loss: impl Fn(u64) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            format: AtomicU8::new(OFF),
            settings: Mutex::default(),
            service,
            queue: Arc::new(LineQueue::new(service, Box::new(on_loss))),
        })
    }

    /// Applies other settings; `None` turns it off.
    pub fn change(&self, new: Option<&Settings>) {
        let (mut settings, service) = (self.settings.lock(), self.service);
        if settings.as_ref() == new {
            return;
        }
        if let Err(error) = self.start_writer() {
            tracing::error!(%error, "[{service}] access_log has no thread");
            return;
        }
        let format = match new.map(|new| new.format) {
            None => OFF,
            Some(AccessLogFormat::Json) => JSON,
            Some(AccessLogFormat::Combined) => COMBINED,
        };
        // Lines that wait still go to where they were meant for.
        self.queue
            .switch(new.map(|new| Output::new(new.target.clone())));
        self.format.store(format, Relaxed);
        match new {
            None => tracing::info!("[{service}] access_log goes nowhere"),
            Some(new) => tracing::info!("[{service}] access_log goes to {}", new.target),
        }
        *settings = new.cloned();
    }

    /// The record of a request that begins; `None`: the log is off.
    pub fn request<B, D: AccessDetails>(
        self: &Arc<Self>,
        request: &Request<B>,
        details: impl FnOnce() -> D,
    ) -> Option<AccessRecord<D>> {
        if self.is_off() {
            return None;
        }
        let head = RequestHead::of(request, D::LOGS_REFERER);
        Some(AccessRecord::new(self, Some(head), details()))
    }

    /// The record of a tunnel, or of bytes that are no request; `None`: the log is off.
    pub fn connection<D: AccessDetails>(
        self: &Arc<Self>,
        details: impl FnOnce() -> D,
    ) -> Option<AccessRecord<D>> {
        (!self.is_off()).then(|| AccessRecord::new(self, None, details()))
    }

    /// Writes what waits, for a second at most. Later lines are not written.
    pub fn close(&self) {
        self.format.store(OFF, Relaxed);
        self.queue.close();
    }

    fn is_off(&self) -> bool {
        self.format.load(Relaxed) == OFF
    }

    /// Puts a line into the queue.
    fn write<D: AccessDetails>(&self, record: &AccessRecord<D>) {
        let line = match self.format.load(Relaxed) {
            OFF => return,
            COMBINED => combined_line::write(record),
            _ => json_line::write(record),
        };
        self.queue.push(&line);
    }

    fn start_writer(&self) -> std::io::Result<()> {
        if !self.queue.begin() {
            return Ok(());
        }
        let queue = Arc::clone(&self.queue);
        let thread = thread::Builder::new().name("hsmux-access".into());
        let started = thread.spawn(move || queue.write_all());
        started.map(drop).inspect_err(|_| self.queue.not_begun())
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
