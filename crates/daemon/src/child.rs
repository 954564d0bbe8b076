//! Processes that this one has started.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How it has ended, if it has by then.
pub fn end_of(child: &mut Child, until: Instant) -> Option<String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.to_string()),
            Ok(None) if Instant::now() > until => return None,
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Err(error) => return Some(error.to_string()),
        }
    }
}
