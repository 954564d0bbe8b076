use std::time::{Duration, Instant};

/// How long a test waits. Slow machines need much of it (`sc-hsm-tool` computes thirty million MD5 for a share);
/// successful waits end early.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Polls `ready` until it returns a value; panics after `limit`.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, ready: impl FnMut() -> Option<T>) -> T {
    poll(limit, ready).unwrap_or_else(|| panic!("{what}: not within {limit:?}"))
}

/// Polls `ready` every 5 ms until it returns a value; `None` after `limit`.
pub(crate) fn poll<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let answer = ready();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
