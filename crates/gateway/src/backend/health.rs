//! Health of a server, as found by clients' requests and by its check. If there is a check, only the check says that
//! the server is back. A failure is logged once, and so is its end.

use std::time::{Duration, Instant};

use hsmux_config::BackendUrl;
use parking_lot::Mutex;

/// The health of a server.
pub struct Health {
    /// `None`: it works, as far as is known.
    down: Mutex<Option<Down>>,
    /// Whether it has a check.
    checked: bool,
}

/// A server that took no connection, or did not answer on it.
struct Down {
    why: String,
    /// Its last failure.
    failed: Instant,
    /// When a request tries it again, and the current interval.
    again: Instant,
    pause: Duration,
}

/// First and longest time for which a failed server is left out.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

impl Health {
    /// A server of which nothing is known yet.
    pub fn new(checked: bool) -> Self {
        Self {
            down: Mutex::new(None),
            checked,
        }
    }

    /// Whether the server gets requests. If it is time to try a failed one again, only this caller does: others still
    /// get
    /// `false`.
    pub fn is_due(&self) -> bool {
        let mut down = self.down.lock();
        let Some(down) = down.as_mut() else {
            return true;
        };
        let now = Instant::now();
        let due = !self.checked && now >= down.again;
        if due {
            down.pause = (down.pause * 2).min(PAUSE.1);
            down.again = now + down.pause;
        }
        due
    }

    /// Whether it works, as far as is known.
    pub fn is_well(&self) -> bool {
        self.down.lock().is_none()
    }

    /// Whether it has not failed since then.
    pub fn may_be_well(&self, since: Instant) -> bool {
        let down = self.down.lock();
        down.as_ref().is_none_or(|down| down.failed < since)
    }

    /// It has answered. If it does not speak HTTP, a connection is an answer.
    pub fn answered(&self, url: &BackendUrl) {
        if !self.checked {
            self.passed(url);
        }
    }

    /// It has passed its check, or has answered if it has none.
    pub fn passed(&self, url: &BackendUrl) {
        let before = self.down.lock().take();
        if before.is_some() {
            tracing::info!("{url} is back");
        }
    }

    /// It has failed.
    pub fn failed(&self, url: &BackendUrl, why: &str) {
        if self.down.lock().get_or_insert_with(Down::new).is_told(why) {
            return;
        }
        tracing::warn!("{url} is left out: {why}");
    }
}

impl Down {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            why: String::new(),
            failed: now,
            again: now + PAUSE.0,
            pause: PAUSE.0,
        }
    }

    /// Records a failure. Returns whether the reason is the one that was last logged.
    fn is_told(&mut self, why: &str) -> bool {
        self.failed = Instant::now();
        let told = self.why == why;
        if !told {
            why.clone_into(&mut self.why);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> BackendUrl {
        BackendUrl {
            scheme: hsmux_config::Scheme::Tcp,
            host: "a.test".into(),
            port: 1,
        }
    }

    fn later(health: &Health, by: Duration) {
        let mut down = health.down.lock();
        let down = down.as_mut().unwrap();
        down.again -= by;
        down.failed -= by;
    }

    #[test]
    fn a_failed_server_is_left_out_and_tried_by_one_request_at_a_time() {
        let health = Health::new(false);
        let begin = Instant::now();
        assert!(health.is_due() && health.is_well());
        for _ in 0..3 {
            health.failed(&url(), "refused");
        }
        assert!(!health.is_due() && !health.is_well());
        assert!(!health.may_be_well(begin) && health.may_be_well(Instant::now()));
        for pause in [1, 2, 4, 8, 10, 10] {
            later(&health, Duration::from_secs(pause));
            assert!(health.is_due(), "{pause}");
            assert!(!health.is_due(), "{pause}");
            health.failed(&url(), "refused");
        }
        health.answered(&url());
        assert!(health.is_due() && health.is_well() && health.may_be_well(begin));
    }

    #[test]
    fn a_checked_server_is_back_when_its_check_passes() {
        let health = Health::new(true);
        health.failed(&url(), "refused");
        later(&health, Duration::from_secs(60));
        health.answered(&url());
        assert!(!health.is_due() && !health.is_well());
        // If all are left out, all are tried.
        assert!(health.may_be_well(Instant::now()));
        health.passed(&url());
        assert!(health.is_due() && health.is_well());
    }
}
