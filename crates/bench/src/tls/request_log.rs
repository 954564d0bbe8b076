//! The common records of all users.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use super::exchange::HttpAnswer;
use super::figures::Figures;
use super::user::is_success;
use crate::Latency;
use crate::measurement::latencies;

/// The common records of all users.
#[derive(Default)]
pub struct RequestLog(Mutex<Entries>);

struct Entries {
    begun: u64,
    unanswered: u64,
    /// Answers with 408 or 5xx.
    refused: u64,
    successful: u64,
    bytes: u64,
    spent: Duration,
    requests: Histogram<u64>,
    connects: Histogram<u64>,
    full: Histogram<u64>,
    resumed: Histogram<u64>,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            begun: 0,
            unanswered: 0,
            refused: 0,
            successful: 0,
            bytes: 0,
            spent: Duration::ZERO,
            requests: latencies(),
            connects: latencies(),
            full: latencies(),
            resumed: latencies(),
        }
    }
}

/// Handshakes and durations; durations are absent if nothing was counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Handshakes with a signature of the server.
    pub full_handshakes: u64,
    /// Handshakes that resumed a session.
    pub resumed_handshakes: u64,
    /// TCP connections.
    pub connect_us: Option<Latency>,
    /// Full handshakes, after TCP.
    pub full_handshake_us: Option<Latency>,
    /// Resumed handshakes, after TCP.
    pub resumed_handshake_us: Option<Latency>,
    /// Answered requests, from the start of the connection to the last byte.
    pub request_us: Option<Latency>,
}

impl RequestLog {
    /// Records the start of a request.
    pub fn begin(&self) {
        self.entries().begun += 1;
    }

    /// Records a successful handshake.
    pub fn handshake_done(&self, connect: Duration, handshake: Duration, resumed: bool) {
        let entries = &mut *self.entries();
        record(&mut entries.connects, connect);
        let kind = if resumed {
            &mut entries.resumed
        } else {
            &mut entries.full
        };
        record(kind, handshake);
    }

    /// Records an answered request.
    pub fn answered(&self, answer: &HttpAnswer, took: Duration) {
        let entries = &mut *self.entries();
        let status = answer.status;
        let refused = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT;
        entries.refused += u64::from(refused);
        entries.successful += u64::from(is_success(status));
        entries.bytes += answer.bytes;
        entries.spent += took;
        record(&mut entries.requests, took);
    }

    /// Records a request without an answer.
    pub fn unanswered(&self) {
        self.entries().unanswered += 1;
    }

    /// Unfinished requests.
    pub fn unfinished(&self) -> u64 {
        let entries = &*self.entries();
        entries.begun - entries.requests.len() - entries.unanswered
    }

    /// Siege's figures.
    pub fn figures(&self, elapsed_s: f64) -> Figures {
        let entries = &*self.entries();
        let over = |amount: f64, of: f64| if of > 0.0 { amount / of } else { 0.0 };
        let transactions = entries.requests.len() - entries.refused;
        let failed = entries.unanswered + entries.refused;
        let answered = transactions as f64;
        let data_mb = entries.bytes as f64 / f64::from(1 << 20);
        let spent_s = entries.spent.as_secs_f64();
        let requests = Latency::of(&entries.requests);
        Figures {
            transactions,
            availability_pct: 100.0 * over(answered, answered + failed as f64),
            elapsed_s,
            data_mb,
            response_s: over(spent_s, answered),
            rate_per_s: over(answered, elapsed_s),
            throughput_mb_s: over(data_mb, elapsed_s),
            concurrency: over(spent_s, elapsed_s),
            ok: entries.successful,
            failed,
            longest_s: requests.map_or(0.0, |requests| requests.max / 1e6),
            shortest_s: requests.map_or(0.0, |requests| requests.min / 1e6),
        }
    }

    /// Handshakes and durations.
    pub fn times(&self) -> Times {
        let entries = &*self.entries();
        Times {
            full_handshakes: entries.full.len(),
            resumed_handshakes: entries.resumed.len(),
            connect_us: Latency::of(&entries.connects),
            full_handshake_us: Latency::of(&entries.full),
            resumed_handshake_us: Latency::of(&entries.resumed),
            request_us: Latency::of(&entries.requests),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(took.as_nanos() as u64);
}
